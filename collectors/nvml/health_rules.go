package nvml

import (
	"math"
	"time"

	"warpgauge/pkg/field"
)

// Results of a watch, as DCGM numbers them.
const (
	healthPass = 0
	healthWarn = 10
	healthFail = 20
)

// healthOK is the label health_error_code of a watch that passes.
const healthOK = "DCGM_FR_OK"

// healthRule is one reason for which a watch does not pass.
type healthRule struct {
	watch, code string     // labels health_watch and health_error_code
	inputs      []field.ID // nil: the state of the GPU's links
	// judge returns a result, or NaN if the inputs do not say. in are the
	// inputs' readings, grown what a counter has grown by in the last minute.
	judge func(in, grown []float64) float64
}

// What DCGM's limits are (common/DcgmGPUHardwareLimits.h).
const (
	mostRetiredPages  = 63
	mostRemappedRows  = 512
	mostLinkCRCErrors = 100 * 60 // in a minute
)

// Bits of DCGM_FI_DEV_CLOCKS_EVENT_REASONS.
const (
	reasonsPower   = 1<<2 | 1<<7 // power limit, power brake
	reasonsThermal = 1<<5 | 1<<6 // software, hardware
)

// Ids of readings that rules are made of, by the catalogue's numbers.
const (
	inputInfoROM = field.ID(84)
	inputPower   = field.ID(155)
)

// healthRules are the watches that NVML can judge and when they do not pass. They
// are those of DCGM's health module (modules/health/DcgmHealthWatch.cpp of
// https://github.com/NVIDIA/DCGM) as far as NVML knows what they ask, with the
// codes that dcgm-exporter prints. If two apply, the worse is shown, and of
// equals the first. PMU, MCU and SM are missing: NVML says nothing about them.
func healthRules() []healthRule {
	return []healthRule{
		{"PCIE", "DCGM_FR_PCI_REPLAY_RATE", []field.ID{202, 237, 238}, judgeReplays},

		{"NVLINK", "DCGM_FR_NVLINK_DOWN", nil, nil},
		{"NVLINK", "DCGM_FR_NVLINK_ERROR_CRITICAL", []field.ID{429, 439, 498, 499}, rises(0, healthFail)}, // replays, recoveries
		{"NVLINK", "DCGM_FR_NVLINK_CRC_ERROR_THRESHOLD", []field.ID{409, 419, 497}, rises(mostLinkCRCErrors, healthFail)},
		{"NVLINK", "DCGM_FR_FIELD_VIOLATION", []field.ID{174}, judgeFabric},
		{"NVLINK", "DCGM_FR_FABRIC_PROBE_STATE", []field.ID{170}, judgeFabricManager},
		{"NVLINK", "DCGM_FR_NVLINK_ERROR_THRESHOLD", []field.ID{409, 419}, rises(0, healthWarn)},

		{"MEM", "DCGM_FR_VOLATILE_DBE_DETECTED", []field.ID{311}, above(0, healthFail)},
		{"MEM", "DCGM_FR_ROW_REMAP_FAILURE", []field.ID{395}, above(0, healthFail)},
		{"MEM", "DCGM_FR_FAULTY_MEMORY", []field.ID{1507}, above(0, healthFail)},
		{"MEM", "DCGM_FR_RETIRED_PAGES_LIMIT", []field.ID{390, 391}, judgeRetired},
		{"MEM", "DCGM_FR_PENDING_PAGE_RETIREMENTS", []field.ID{392}, above(0, healthWarn)},
		{"MEM", "DCGM_FR_PENDING_ROW_REMAP", []field.ID{396}, above(0, healthWarn)},
		{"MEM", "DCGM_FR_UNCORRECTABLE_ROW_REMAP", []field.ID{393}, above(mostRemappedRows-1, healthWarn)},

		{"INFOROM", "DCGM_FR_CORRUPT_INFOROM", []field.ID{inputInfoROM}, judgeInfoROM},

		{"THERMAL", "DCGM_FR_CLOCK_THROTTLE_THERMAL", []field.ID{241, field.ClockEventReasons}, slowed(reasonsThermal)},
		{"POWER", "DCGM_FR_CLOCK_THROTTLE_POWER", []field.ID{240, field.ClockEventReasons}, slowed(reasonsPower)},
		{"POWER", "DCGM_FR_POWER_UNREADABLE", []field.ID{inputPower}, judgePower},

		{"DRIVER", "DCGM_FR_GPU_RECOVERY_RESET", []field.ID{1523}, equals(1, healthFail)},
		{"DRIVER", "DCGM_FR_GPU_RECOVERY_REBOOT", []field.ID{1523}, equals(2, healthFail)},
		{"DRIVER", "DCGM_FR_GPU_RECOVERY_DRAIN_RESET", []field.ID{1523}, equals(4, healthFail)},
		{"DRIVER", "DCGM_FR_GPU_RECOVERY_DRAIN_P2P", []field.ID{1523}, equals(3, healthWarn)},
	}
}

// xidRule is an XID after which the watch ALL does not pass any more.
type xidRule struct {
	xid    uint64
	code   string
	result float64
}

// xidRules are the XIDs that DCGM calls devastating. One that occurred stays until
// the collector is closed, as it has to be for a reset of the GPU.
func xidRules() []xidRule {
	const other = "DCGM_FR_XID_ERROR"
	return []xidRule{
		{79, "DCGM_FR_FALLEN_OFF_BUS", healthFail},
		{95, "DCGM_FR_UNCONTAINED_ERROR", healthFail},
		{48, other, healthFail},  // double-bit ECC error
		{74, other, healthFail},  // NVLink error
		{119, other, healthFail}, // GSP timed out
		{120, other, healthFail}, // GSP error
		{140, other, healthFail}, // ECC error without recovery
		{94, other, healthWarn},  // ECC error that was contained
	}
}

// known returns result if something is true, pass if it is known not to
// be, and NaN if v is blank.
func known(v float64, is bool, result float64) float64 {
	switch {
	case math.IsNaN(v):
		return v
	case is:
		return result
	}
	return healthPass
}

// worst returns the worst of two results, of which each may be unknown.
func worst(a, b float64) float64 {
	if math.IsNaN(a) || b > a {
		return b
	}
	return a
}

func above(limit, result float64) func(in, _ []float64) float64 {
	return func(in, _ []float64) float64 { return known(in[0], in[0] > limit, result) }
}

func equals(v, result float64) func(in, _ []float64) float64 {
	return func(in, _ []float64) float64 { return known(in[0], in[0] == v, result) }
}

// rises holds if any of the counters has grown by more than limit in a minute.
func rises(limit, result float64) func(_, grown []float64) float64 {
	return func(_, grown []float64) float64 {
		out := math.NaN()
		for _, g := range grown {
			out = worst(out, known(g, g > limit, result))
		}
		return out
	}
}

// slowed holds if clocks were held down in the last minute, or are now.
func slowed(reasons uint64) func(in, grown []float64) float64 {
	return func(in, grown []float64) float64 {
		out := known(grown[0], grown[0] > 0, healthWarn)
		if mask := in[1]; mask >= 0 { // not blank
			out = worst(out, known(mask, uint64(mask)&reasons != 0, healthWarn))
		}
		return out
	}
}

// judgeReplays: PCIe's specification allows a bit error rate of 1e-12, and each
// costs a replay.
func judgeReplays(in, grown []float64) float64 {
	perLane := [...]float64{2.5, 5, 8, 16, 32, 64} // Gbit/s by generation
	gen, lanes := in[1], in[2]
	if grown[0] == 0 {
		return healthPass
	}
	if math.IsNaN(grown[0]) || !(gen >= 1) || !(lanes >= 1) {
		return math.NaN()
	}
	g := perLane[int(min(gen, float64(len(perLane))))-1]
	return known(grown[0], grown[0] > math.Ceil(g*1e9*1e-12*60*lanes), healthWarn)
}

func judgeRetired(in, _ []float64) float64 {
	sum := math.NaN()
	for _, v := range in {
		switch {
		case math.IsNaN(v):
		case math.IsNaN(sum):
			sum = v
		default:
			sum += v
		}
	}
	return known(sum, sum >= mostRetiredPages, healthFail)
}

func judgeInfoROM(in, _ []float64) float64 { return known(in[0], in[0] == 0, healthWarn) }

// judgePower: a GPU whose power can be read at all, but not now.
func judgePower(in, _ []float64) float64 {
	if math.IsNaN(in[0]) {
		return healthWarn
	}
	return healthPass
}

// judgeFabric reads the mask NVML_GPU_FABRIC_HEALTH_MASK_* of nvml.h: two bits
// each for bandwidth, route recovery, route and access time-outs, of which 1
// means trouble, then four bits in which 0 and 1 mean a configuration that is right.
func judgeFabric(in, _ []float64) float64 {
	if !(in[0] >= 0) {
		return math.NaN()
	}
	mask := uint64(in[0])
	bad := mask>>8&0xf > 1
	for shift := 0; shift < 8; shift += 2 {
		bad = bad || mask>>shift&3 == 1
	}
	return known(in[0], bad, healthFail)
}

// judgeFabricManager reads DCGM's state: 0 there is none, 1 not started, 2
// starting, 3 started, 4 failed. Others say that the state is not known.
func judgeFabricManager(in, _ []float64) float64 {
	switch in[0] {
	case 0, 3:
		return healthPass
	case 2:
		return healthWarn
	case 1, 4:
		return healthFail
	}
	return math.NaN()
}

const (
	// trailSpan is how far back a rise is searched for: a minute, as DCGM's health
	// watches do, and something for readings that are taken every 30 s or so.
	trailSpan = 75 * time.Second
	trailStep = 10 * time.Second // between two points that are kept
	trailMost = int(trailSpan/trailStep) + 2
)

// trail is the recent past of a counter.
type trail struct {
	points [trailMost]trailPoint // from the oldest
	n      int
}

type trailPoint struct {
	at time.Time
	v  float64
}

// rise takes the counter's value and returns what it has grown by in the last
// minute; if readings are further apart, what it grew by in a minute on
// average since the one before. NaN means that it is not known: v is blank, or it
// is the first and not 0.
func (t *trail) rise(now time.Time, v float64) float64 {
	if math.IsNaN(v) {
		return v
	}
	if t.n > 0 && v < t.points[t.n-1].v {
		t.n = 0 // the counter was reset
	}
	for t.n > 1 && now.Sub(t.points[0].at) > trailSpan {
		t.n = copy(t.points[:], t.points[1:t.n])
	}
	first := t.points[0]
	switch {
	case t.n == 0:
		t.keep(now, v)
		if v == 0 {
			return 0
		}
		return math.NaN()
	case now.Sub(t.points[t.n-1].at) >= trailStep:
		t.keep(now, v)
	}
	grown := v - first.v
	if span := now.Sub(first.at); span > trailSpan {
		grown *= float64(time.Minute) / float64(span)
	}
	return grown
}

func (t *trail) keep(now time.Time, v float64) {
	if t.n == trailMost {
		t.n = copy(t.points[:], t.points[1:])
	}
	t.points[t.n] = trailPoint{now, v}
	t.n++
}
