//go:build linux && cgo

package nvml

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// reading is one row of the table: how the collector reads a field of the catalogue. docs/nvml.md is generated from the
// table. A field may have several rows; a device uses the first that it supports.
type reading struct {
	id    field.ID
	terms []term  // summed, unless how says otherwise
	how   convert // from NVML's value to the field's unit
	mul   float64 // then × mul ÷ div, where 0 means 1; an integer field is truncated
	div   float64

	label  collector.Label // of the column; a device has one column per label
	anyOf  bool            // skip terms that the device lacks
	boards string          // GPUs that have it, where documented; "" means all
	note   string          // difference from DCGM, and why
}

// term is one result of one call.
type term struct {
	call *call
	arg  [3]uint32 // for getFieldValues: field, scope
	pick int       // index of the result
}

// Scopes of a field value other than the device itself.
const (
	AllLinks uint32 = math.MaxUint32
	ThisLink uint32 = math.MaxUint32 - 1 // stands for the column's own link
)

// callTerms returns the term for one result of a call. pick is the result's index.
func callTerms(c *call, pick int, args ...uint32) []term {
	t := term{call: c, pick: pick}
	copy(t.arg[:], args)
	return []term{t}
}

// value returns the term for a field of nvmlDeviceGetFieldValues. NVML_FI_… are numbered as in nvml.h of CUDA 13.1 and
// newer; see fieldOf.
func value(id uint32, scope ...uint32) []term {
	return callTerms(getFieldValues, 0, append([]uint32{id}, scope...)...)
}

// convert is a conversion of NVML's value, in the words of the documentation.
type convert string

const (
	asIs           convert = "" // sum of the terms
	unlessZero     convert = "blank if 0"
	unlessNone     convert = "blank if the total is 0" // of the value and its total
	lowest         convert = "the lowest"
	climbing       convert = "held back for one sample when it goes back"
	climbingWide   convert = "held back for one sample when it goes back; blank until it has passed 2^32"
	perSecond      convert = "growth per second"
	perSecondWide  convert = "growth per second of a counter that has passed 2^32"
	usedShare      convert = "used ÷ (total − reserved)" // of total, used, reserved
	asCapability   convert = "major × 65536 + minor"
	asPState       convert = "blank if 32" // NVML_PSTATE_UNKNOWN
	asComputeMode  convert = "2 → 1, 3 → 2, as in DCGM"
	asFabricStatus convert = "state; when completed 3 for success, 4 for failure" // of state and status
	asFabricError  convert = "DCGM's code when completed, else blank"             // of state and status
	asBitErrors    convert = "mantissa × 10^−exponent"
	worstBitErrors convert = "mantissa × 10^−exponent of the worst link"
)

// allReadings returns the table. It is built on first use and never changes.
var allReadings = sync.OnceValue(func() []reading {
	return slices.Concat(identityReadings, clockReadings, thermalReadings, powerReadings, utilizationReadings,
		memoryReadings, eccReadings(), pcieReadings, violationReadings, nvlinkReadings(), fabricReadings(), smoothingReadings)
})

// byField returns the rows of each field, in order of preference.
var byField = sync.OnceValue(func() map[field.ID][]*reading {
	out := map[field.ID][]*reading{}
	table := allReadings()
	for i := range table {
		out[table[i].id] = append(out[table[i].id], &table[i])
	}
	return out
})

// Fields whose numbers depend on the driver: power smoothing (251 to 268) and clock event durations (269 to 273). All
// lower fields have the same number in every driver.
const firstMoving, firstMovedThrottle, lastMoving = 251, 269, 273

// fieldOf returns the number of a field in a driver branch. It returns false if that driver lacks the field, or if the
// branch is unknown (0). The numbers come from nvml.h in go-nvml's history, by the branch's CUDA toolkit: 12.8 (570)
// has power smoothing at 251; 12.9 and 13.0 (575, 580) put the five durations before it; since 13.1 (590) they follow
// it. They are listed in testdata/nvml-fields.csv.
func fieldOf(branch int, id uint32) (uint32, bool) {
	const times = lastMoving - firstMovedThrottle + 1
	switch {
	case id < firstMoving:
		return id, true
	case branch >= 590:
		return id, true
	case id > lastMoving:
		return 0, false
	case branch >= 575 && id >= firstMovedThrottle:
		return id - firstMovedThrottle + firstMoving, true
	case branch >= 575:
		return id + times, true
	case branch == 570 && id < firstMovedThrottle:
		return id, true
	}
	return 0, false
}

// moved returns the documentation text for a field's number in drivers 575 to 589.
func moved(id uint32) string {
	other, _ := fieldOf(575, id)
	return "in drivers 575 to 589 field " + strconv.Itoa(int(other))
}

// branchOf returns the branch of a driver version (580 for "580.65.06"), 0 if the version is malformed.
func branchOf(version string) int {
	major, _, _ := strings.Cut(version, ".")
	branch, err := strconv.Atoi(major)
	if err != nil {
		return 0
	}
	return branch
}

// levelOf returns the finest level at which the collector reads a field. NVML reads memory and processes per instance;
// GPM reads profiling.
func (r *reading) levelOf() field.Level {
	switch r.terms[0].call {
	case getMemoryInfo, getBAR1Info, getComputeProcesses, getGraphicsProcesses:
		return field.Instance
	}
	for _, t := range r.terms {
		if t.arg[0] == ThisLink || t.arg[1] == ThisLink {
			return field.Link
		}
	}
	return field.GPU
}

// profiling is one row of the table of DCGM_FI_PROF_… fields, which NVML's GPU performance monitor (GPM) supplies. Two
// GPM samples give the means over the time between them.
type profiling struct {
	metric uint32  // NVML_GPM_METRIC_… in nvml.h; of link 0 if perLink
	scale  float64 // from GPM's unit to the field's
	// perLink marks a field of links. The metrics of the links 0 to 17 are 2 apart; those from link 18 on have their own range.
	perLink bool
}

// GPM's percentages are ratios in DCGM, and its MiB/s are bytes per second; see DCGM_FIELD_ID_IS_GPM_MIB_BANDWIDTH in
// DCGM's dcgm_fields_internal.hpp.
const (
	fromPercent = 0.01
	fromMiB     = 1 << 20
)

// profilings returns the table by field. DCGM reads the same metrics (DcgmFieldIdToNvmlGpmMetricId in its dcgm_fields.cpp).
var profilings = sync.OnceValue(func() map[field.ID]profiling {
	table := map[field.ID]profiling{
		1532: {metric: 63, scale: fromMiB, perLink: true},
		1533: {metric: 62, scale: fromMiB, perLink: true},
	}
	// run adds consecutive fields, whose metrics are consecutive, too.
	run := func(first, last field.ID, metric uint32, scale float64) {
		for id := first; id <= last; id++ {
			table[id] = profiling{metric: metric + uint32(id-first), scale: scale}
		}
	}
	// graphics engine, SM, SM occupancy, any tensor pipe, DRAM, FP64, FP32, FP16; PCIe and NVLink, sent and received;
	// IMMA, HMMA, DFMA, integer
	for i, metric := range []uint32{1, 2, 3, 5, 10, 11, 12, 13, 20, 21, 61, 60, 9, 7, 6, 4} {
		id, scale := field.ID(1001+i), fromPercent
		if id >= 1009 && id <= 1012 {
			scale = fromMiB
		}
		run(id, id, metric, scale)
	}
	for i, metric := range []uint32{100, 102, 101, 103} { // C2C: all and data, sent; all and data, received
		run(field.ID(1076+i), field.ID(1076+i), metric, fromMiB)
	}
	run(1017, 1024, 30, fromPercent) // video decoders
	run(1025, 1032, 40, fromPercent) // JPEG decoders
	run(1033, 1034, 50, fromPercent) // optical flow engines
	for link := range uint32(18) {
		tx := field.ID(1040 + 2*link)
		run(tx, tx, 63+2*link, fromMiB)
		run(tx+1, tx+1, 62+2*link, fromMiB)
	}
	run(1080, 1083, 160, 1) // caches of host and peer memory
	run(1084, 1096, 248, 1) // cycles and bytes since boot
	return table
})

// metricOf returns the metric of a link, counted from 0; 0 if GPM has none for it. The metrics of links 18 and higher
// begin at 212.
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

// Has returns a function that reports whether the collector supplies a field on some GPU and driver.
func Has() func(*field.Descriptor) bool {
	has := map[field.ID]bool{
		field.XIDErrors: true, field.XIDErrorsCount: true, field.XIDErrorsTotal: true,
		field.ClockEventsCount: true, field.ClockEventsTotal: true, field.GPUHealth: true, field.P2PStatus: true,
	}
	for _, r := range allReadings() {
		has[r.id] = true
	}
	for id := range profilings() {
		has[id] = true
	}
	for _, f := range textFacts {
		has[f.id] = true
	}
	return func(d *field.Descriptor) bool { return has[d.ID] }
}
