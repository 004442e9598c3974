package nvml

import (
	"slices"
	"sync"

	"warpgauge/pkg/field"
)

// profiling says how a field DCGM_FI_PROF_… is read: from NVML's GPU performance
// monitor, two samples of which give means over the time between them.
type profiling struct {
	id     field.ID
	metric uint32  // NVML_GPM_METRIC_…, numbered in nvml.h; of link 0 where perLink
	scale  float64 // from GPM's unit to the field's
	since  int     // branch of the first driver
	// perLink is set where the field belongs to links: the metrics of the links 0
	// to 17 are 2 apart, those from 18 on are elsewhere.
	perLink bool
}

// What GPM gives in percent is a ratio in DCGM, and what it gives in MiB/s is in
// bytes per second; see DCGM_FIELD_ID_IS_GPM_MIB_BANDWIDTH in DCGM's
// dcgm_fields_internal.hpp.
const (
	fromPercent = 0.01
	fromMiB     = 1 << 20
)

// First drivers, by the nvml.h in which the metrics appear.
const (
	gpmFirst  = 525
	gpmSecond = 575 // C2C, caches of host and peer memory
	gpmThird  = 610 // counters since boot, links from 18 on
)

// profilings is the table of fields, in their order. DCGM reads the same metrics
// (DcgmFieldIdToNvmlGpmMetricId in its dcgm_fields.cpp).
var profilings = sync.OnceValue(func() []profiling {
	table := []profiling{
		{id: 1001, metric: 1, scale: fromPercent, since: gpmFirst},  // graphics engine
		{id: 1002, metric: 2, scale: fromPercent, since: gpmFirst},  // SM
		{id: 1003, metric: 3, scale: fromPercent, since: gpmFirst},  // SM occupancy
		{id: 1004, metric: 5, scale: fromPercent, since: gpmFirst},  // any tensor pipe
		{id: 1005, metric: 10, scale: fromPercent, since: gpmFirst}, // DRAM
		{id: 1006, metric: 11, scale: fromPercent, since: gpmFirst}, // FP64
		{id: 1007, metric: 12, scale: fromPercent, since: gpmFirst}, // FP32
		{id: 1008, metric: 13, scale: fromPercent, since: gpmFirst}, // FP16
		{id: 1009, metric: 20, scale: fromMiB, since: gpmFirst},     // PCIe sent
		{id: 1010, metric: 21, scale: fromMiB, since: gpmFirst},     // PCIe received
		{id: 1011, metric: 61, scale: fromMiB, since: gpmFirst},     // NVLink sent
		{id: 1012, metric: 60, scale: fromMiB, since: gpmFirst},     // NVLink received
		{id: 1013, metric: 9, scale: fromPercent, since: gpmFirst},  // IMMA
		{id: 1014, metric: 7, scale: fromPercent, since: gpmFirst},  // HMMA
		{id: 1015, metric: 6, scale: fromPercent, since: gpmFirst},  // DFMA
		{id: 1016, metric: 4, scale: fromPercent, since: gpmFirst},  // integer
		{id: 1076, metric: 100, scale: fromMiB, since: gpmSecond},   // C2C sent, all
		{id: 1077, metric: 102, scale: fromMiB, since: gpmSecond},   // C2C sent, data
		{id: 1078, metric: 101, scale: fromMiB, since: gpmSecond},   // C2C received, all
		{id: 1079, metric: 103, scale: fromMiB, since: gpmSecond},   // C2C received, data
		{id: 1532, metric: 63, scale: fromMiB, since: gpmFirst, perLink: true},
		{id: 1533, metric: 62, scale: fromMiB, since: gpmFirst, perLink: true},
	}
	// run adds fields whose metrics are numbered as they are, step apart.
	run := func(first, last field.ID, metric, step uint32, scale float64, since int) {
		for id := first; id <= last; id++ {
			table = append(table, profiling{id: id, metric: metric + uint32(id-first)*step, scale: scale, since: since})
		}
	}
	run(1017, 1024, 30, 1, fromPercent, gpmFirst) // video decoders
	run(1025, 1032, 40, 1, fromPercent, gpmFirst) // JPEG decoders
	run(1033, 1034, 50, 1, fromPercent, gpmFirst) // optical flow engines
	for link := range uint32(18) {
		tx := field.ID(1040 + 2*link)
		run(tx, tx, 63+2*link, 0, fromMiB, gpmFirst)
		run(tx+1, tx+1, 62+2*link, 0, fromMiB, gpmFirst)
	}
	run(1080, 1083, 160, 1, 1, gpmSecond) // caches of host and peer memory
	run(1084, 1096, 248, 1, 1, gpmThird)  // cycles and bytes since boot
	slices.SortFunc(table, func(a, b profiling) int { return int(a.id) - int(b.id) })
	return table
})

// profilingOf finds the row of a field.
func profilingOf(id field.ID) (profiling, bool) {
	table := profilings()
	i, ok := slices.BinarySearchFunc(table, id, func(p profiling, id field.ID) int { return int(p.id) - int(id) })
	if !ok {
		return profiling{}, false
	}
	return table[i], true
}

// metricOf is the metric of a link, counted from 0; 0 if GPM has none for it. The
// ids of the links from 18 on begin at 212.
func (p profiling) metricOf(link int) uint32 {
	const first, last, second = 18, 35, 212
	switch {
	case !p.perLink:
		return p.metric
	case link < 0 || link > last:
		return 0
	case link < first:
		return p.metric + 2*uint32(link)
	}
	return second + p.metric - 62 + 2*uint32(link-first)
}
