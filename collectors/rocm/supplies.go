package rocm

import (
	"slices"
	"sync"

	"warpgauge/collectors/rocm/internal/sysfs"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Supplies reports whether some AMD GPU, partition or link has the field. It reads no hardware.
func Supplies(d *field.Descriptor) bool { return known()[d.ID] }

// known returns the fields that this collector can supply. The map is built on first use and never changes.
var known = sync.OnceValue(func() map[field.ID]bool {
	ids := map[field.ID]bool{}
	for _, specs := range everySpec() {
		for _, s := range specs {
			ids[s.field] = true
		}
	}
	for _, list := range []map[field.ID]string{texts(&sysfs.GPU{UniqueID: 1}, collector.Device{}, ""), addedTexts(boardFacts{})} {
		for id := range list {
			ids[id] = true
		}
	}
	return ids
})

// everySpec returns all possible columns of a GPU, a partition and a link.
func everySpec() [3][]spec {
	whole := sysfs.GPU{Card: "card1", Compute: "SPX", Memory: "NPS1", Instances: []sysfs.Instance{{Units: 1, Memory: 1}}}
	return [3][]spec{boardSpecs(&whole, node{count: 1}, boardFacts{}), instanceSpecs(whole.Instances[0], 0), linkSpecs(0)}
}

// files returns the files that the terms of a column need, in the order of the terms, without duplicates.
func (s *spec) files() (from []string) {
	add := func(file string) {
		if !slices.Contains(from, file) {
			from = append(from, file)
		}
	}
	for _, t := range s.terms {
		for _, r := range t.raw {
			add(r.File())
		}
		if len(t.metric) > 0 || t.op == opUnread {
			add("gpu_metrics")
		}
		if t.op == opBus {
			add("pcie_bw")
		}
		if t.op == opProcess {
			add("kfd/proc/*")
		}
	}
	return from
}
