package rocm

import (
	"slices"

	"warpgauge/collectors/rocm/internal/sysfs"
	"warpgauge/pkg/field"
)

// Supply is a field that this collector can supply, and what it reads for it.
type Supply struct {
	Field field.ID
	// From are files below the GPU's directory, or below /sys/class/kfd/ if they
	// begin with kfd/; none for what is known at Open.
	From []string
}

// Supplies lists the fields that this collector can supply for some GPU, partition
// or link, by id. It is for the documentation and touches nothing.
func Supplies() []Supply {
	by := map[field.ID][]string{}
	for _, specs := range everySpec() {
		for _, s := range specs {
			by[s.field] = append(by[s.field], s.files()...)
		}
	}
	for id, file := range textFiles() {
		by[id] = append(by[id], file)
	}
	var out []Supply
	for id, from := range by {
		slices.Sort(from)
		out = append(out, Supply{id, slices.Compact(from)})
	}
	slices.SortFunc(out, func(a, b Supply) int { return int(a.Field) - int(b.Field) })
	return out
}

// everySpec returns all columns that a GPU, a partition and a link can have.
func everySpec() [3][]spec {
	whole := sysfs.GPU{Card: "card1", Compute: "SPX", Memory: "NPS1", Instances: []sysfs.Instance{{Units: 1}}}
	return [3][]spec{boardSpecs(&whole, node{count: 1}), instanceSpecs(sysfs.Instance{Units: 1}), linkSpecs(0)}
}

// files are what the terms of a column are read from.
func (s *spec) files() (from []string) {
	for _, t := range s.terms {
		for _, r := range t.raw {
			from = append(from, r.File())
		}
		if len(t.metric) > 0 {
			from = append(from, "gpu_metrics")
		}
		if t.op == opBus {
			from = append(from, "pcie_bw")
		}
	}
	return from
}

// textFiles are the fields that are texts, for rows of type label.
func textFiles() map[field.ID]string {
	return map[field.ID]string{
		dcgmDriver: "/sys/module/amdgpu/version, else the kernel's release", dcgmName: "product_name, else a list of PCI ids",
		dcgmBrand: "AMD", dcgmSerial: "serial_number", dcgmUUID: "unique_id, else the PCI address", dcgmPCI: "the link of the card",
		dcgmVBIOS: "vbios_version", field.AMDUniqueID: "unique_id", field.AMDComputePartition: "current_compute_partition",
		field.AMDMemoryPartition: "current_memory_partition", field.AMDCard: "drm/card*", field.AMDRenderNode: "drm/renderD*",
	}
}
