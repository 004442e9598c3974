package nvml

import (
	"math"
	"slices"
	"sync"

	"warpgauge/pkg/field"
)

// reading is one row of the table: how a field of the catalogue is read. The
// table is what the collector binds and what docs/nvml.md shows. A field may have
// several rows; a device uses the first that it supports.
type reading struct {
	id    field.ID
	terms []term  // what is added up, unless how says otherwise
	how   convert // from NVML's value to the field's unit
	mul   float64 // then × mul ÷ div, 0 standing for 1; whole if the field is an integer
	div   float64

	anyOf  bool   // terms that the device does not have are left out of the sum
	since  int    // branch of the first driver; 0: all supported ones
	boards string // which GPUs have it, as far as it is documented; "" all
	note   string // what differs from DCGM, and why
}

// term is one result of one call.
type term struct {
	call call
	arg  [3]uint32 // of fieldValues: field, scope
	pick int       // which result of several
}

// Scopes of a field that is not the device itself.
const (
	allLinks uint32 = math.MaxUint32
	thisLink uint32 = math.MaxUint32 - 1 // stands for the link whose column it is
)

// of is the result pick of a call.
func of(c call, pick int, args ...uint32) []term {
	t := term{call: c, pick: pick}
	copy(t.arg[:], args)
	return []term{t}
}

// value is a field of nvmlDeviceGetFieldValues. NVML_FI_… are numbered in nvml.h.
func value(id uint32, scope ...uint32) []term {
	return of(getFieldValues, 0, append([]uint32{id}, scope...)...)
}

// convert is what becomes of NVML's value.
type convert uint8

const (
	asIs           convert = iota // sum of the terms
	unlessZero                    // 0 means that it is not known: blank
	unlessNone                    // a part, of a total: blank if the total is 0
	climbing                      // only goes up, see climb
	perSecond                     // per second, from a counter
	perSecondWide                 // rate of a counter that is only usable if the driver counts in 64 bits
	usedShare                     // of total, used, reserved: used ÷ (total − reserved)
	asCapability                  // of major, minor: major << 16 | minor
	asPState                      // 32 is NVML_PSTATE_UNKNOWN: blank
	asComputeMode                 // DCGM numbers the compute modes 0, 1, 2
	asFabricStatus                // of state, status: DCGM's status of the fabric manager
	asFabricError                 // of state, status: DCGM's code, blank until the fabric has come up or failed
	asBitErrors                   // a bit error rate, mantissa << 8 | exponent
	numConverts
)

// allReadings is the table, built at the first use and read-only then.
var allReadings = sync.OnceValue(func() []reading {
	table := slices.Concat(identityReadings, clockReadings, thermalReadings, powerReadings, utilizationReadings,
		memoryReadings, eccReadings(), pcieReadings, violationReadings, nvlinkReadings(), fabricReadings, smoothingReadings)
	for i := range table {
		table[i].since = max(table[i].since, table[i].firstDriver())
	}
	return table
})

// byField are the rows of each field, in order of preference.
var byField = sync.OnceValue(func() map[field.ID][]*reading {
	out := map[field.ID][]*reading{}
	table := allReadings()
	for i := range table {
		out[table[i].id] = append(out[table[i].id], &table[i])
	}
	return out
})

// firstDriver is the branch that has all terms under some name.
func (r *reading) firstDriver() int {
	first := 0
	for _, t := range r.terms {
		gens := functions[t.call]
		since := gens[len(gens)-1].since
		for i := len(gens) - 1; i >= 0 && t.pick >= gens[i].results; i-- {
			since = gens[max(i-1, 0)].since
		}
		if t.call == getFieldValues {
			since = fieldSince(t.arg[0])
		}
		first = max(first, since)
	}
	return first
}

// fieldSince is the first driver whose nvml.h has the field, 0 for those that all
// supported ones have.
func fieldSince(id uint32) int {
	for _, s := range [...]struct {
		first uint32
		since int
	}{
		{269, 575}, {235, 570}, {231, 575}, {230, 570}, {201, 560}, {197, 555}, {170, 535}, {167, 525}, {161, 520},
	} {
		if id >= s.first {
			return s.since
		}
	}
	return 0
}

// levelOf is the finest level at which the collector has a field. Of an instance
// NVML has memory and processes; profiling is GPM's.
func (r *reading) levelOf() field.Level {
	switch r.call() {
	case getMemoryInfo, getBAR1Info, getComputeProcesses, getGraphicsProcesses:
		return field.Instance
	}
	switch r.call() {
	case getVGPUMemory, getVGPUType, getVGPUFrameRate, getVGPUInstance, getVGPULicence:
		return field.VGPU
	}
	for _, t := range r.terms {
		if t.arg[0] == thisLink || t.arg[1] == thisLink {
			return field.Link
		}
	}
	return field.GPU
}

func (r *reading) call() call { return r.terms[0].call }
