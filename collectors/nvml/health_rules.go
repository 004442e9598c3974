//go:build linux && cgo

package nvml

import (
	"math"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

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

// healthRule is one reason why a watch does not pass. A rule without inputs checks the GPU's links.
type healthRule struct {
	watch, code string // labels health_watch and health_error_code
	inputs      []field.ID
	judge       judge // decides; if nil, condition decides on each input, and result is the watch's result
	condition   field.Condition
	result      float64
}

// judge returns a result, or NaN if the inputs do not decide. grown holds the counters' increases in the last minute.
type judge func(in, grown []float64) float64

// maxRetiredPages is DCGM's limit (common/DcgmGPUHardwareLimits.h).
const maxRetiredPages = 63

// healthRules returns the rules of the watches that NVML's readings can decide, for a GPU of an architecture. They
// follow DCGM 4.6's health module (modules/health/DcgmHealthWatch.cpp of https://github.com/NVIDIA/DCGM), with the
// codes that dcgm-exporter prints; testdata/dcgm-health.csv lists the lines there. If two rules apply, the worse
// result counts, or the first of two equal ones. PMU, MCU and SM are missing because DCGM has no rule for them.
func healthRules(arch nvml.DeviceArchitecture) []healthRule {
	judged := func(watch, code string, of judge, inputs ...field.ID) healthRule {
		return healthRule{watch: watch, code: code, inputs: inputs, judge: of}
	}
	shown := func(watch, code string, result float64, c field.Condition) healthRule {
		return healthRule{watch: watch, code: code, inputs: c.Readings, condition: c, result: result}
	}
	return []healthRule{
		judged("PCIE", "DCGM_FR_PCI_REPLAY_RATE", judgeReplays, field.PCIeReplays, field.PCIeGeneration, field.PCIeWidth),

		{watch: "NVLINK", code: "DCGM_FR_NVLINK_DOWN"},
		shown("NVLINK", linkCritical, healthFail, field.LinkReplay),
		shown("NVLINK", linkCritical, healthFail, field.LinkErrorNow),
		shown("NVLINK", linkCritical, healthFail, field.Link5Error),
		shown("NVLINK", linkCritical, healthFail, field.Link5RecoveryFailed),
		shown("NVLINK", "DCGM_FR_NVLINK_CRC_ERROR_THRESHOLD", healthFail, field.LinkCRCErrors),
		judged("NVLINK", "DCGM_FR_NVLINK_EFFECTIVE_BER_THRESHOLD", bitErrors(effectiveBERIsBad, field.EffectiveBER), field.NVLinks5EffectiveBERCode, field.NVLinks5EffectiveBER),
		judged("NVLINK", "DCGM_FR_NVLINK_SYMBOL_BER_THRESHOLD", bitErrors(symbolBERIsBad(arch), 15e-255), field.NVLinks5SymbolBERCode, field.NVLinks5SymbolBER),
		judged("NVLINK", "DCGM_FR_FIELD_VIOLATION", judgeFabric, field.FabricHealthMask),
		judged("NVLINK", "DCGM_FR_FABRIC_PROBE_STATE", judgeFabricManager, field.FabricManagerStatus),
		shown("NVLINK", "DCGM_FR_NVLINK_ERROR_THRESHOLD", healthWarn, field.LinkCRCError),
		shown("NVLINK", linkCritical, healthWarn, field.Link5Recovered),

		shown("MEM", "DCGM_FR_VOLATILE_DBE_DETECTED", healthFail, field.AnyUncorrectedError),
		shown("MEM", rowRemapFailure, healthFail, field.RowRemapFailed),
		shown("MEM", "DCGM_FR_FAULTY_MEMORY", healthFail, field.UnrepairableMemory),
		judged("MEM", "DCGM_FR_RETIRED_PAGES_LIMIT", judgeRetired, field.RetiredPagesCorrected, field.RetiredPagesUncorrected),
		// DCGM also demands more than one page within a week, but it keeps samples for ten minutes only
		// (dcgmHealthSet) and uses 0 for the missing one.
		shown("MEM", "DCGM_FR_RETIRED_PAGES_DBE_LIMIT", healthFail, field.ManyUncorrectablePages),
		shown("MEM", pendingRetirements, healthWarn, field.PageRetirementPending),
		shown("MEM", "DCGM_FR_UNCORRECTABLE_ROW_REMAP_LIMIT", healthWarn, field.ManyRemappedRows),

		shown("INFOROM", corruptInfoROM, healthWarn, field.InfoROMCorrupt),

		shown("THERMAL", slowedByHeat, healthWarn, field.SlowedByHeat),
		shown("POWER", slowedByPower, healthWarn, field.SlowedByPower),
		judged("POWER", "DCGM_FR_POWER_UNREADABLE", unreadable(), field.PowerUsage),

		shown("DRIVER", "DCGM_FR_GPU_RECOVERY_RESET", healthFail, field.RecoveryReset),
		shown("DRIVER", "DCGM_FR_GPU_RECOVERY_REBOOT", healthFail, field.RecoveryReboot),
		shown("DRIVER", "DCGM_FR_GPU_RECOVERY_DRAIN_RESET", healthFail, field.RecoveryDrainReset),
		shown("DRIVER", "DCGM_FR_GPU_RECOVERY_DRAIN_P2P", healthWarn, field.RecoveryDrainP2P),
	}
}

// Codes that readings and XIDs share. DCGM 4 renamed the codes of slowed clocks to CLOCKS_EVENT_…; dcgm-exporter's
// labels keep the old names.
const (
	linkCritical       = "DCGM_FR_NVLINK_ERROR_CRITICAL"
	rowRemapFailure    = "DCGM_FR_ROW_REMAP_FAILURE"
	pendingRetirements = "DCGM_FR_PENDING_PAGE_RETIREMENTS"
	corruptInfoROM     = "DCGM_FR_CORRUPT_INFOROM"
	slowedByHeat       = "DCGM_FR_CLOCK_THROTTLE_THERMAL"
	slowedByPower      = "DCGM_FR_CLOCK_THROTTLE_POWER"
)

// allWatch is the watch of XIDs that make a GPU unusable. It passes while none has occurred. In other watches an XID
// can only make the result worse.
const allWatch = "ALL"

// xidRule is an XID that makes a watch warn or fail.
type xidRule struct {
	watch  string
	xid    uint64
	code   string
	result float64
}

// xidRules returns DCGM's rules (BuildXidMappings) for a GPU of an architecture. An XID counts until the collector is
// closed, as it must be for a reset of the GPU; in DCGM it counts until the host engine ends.
func xidRules(arch nvml.DeviceArchitecture) []xidRule {
	const other = "DCGM_FR_XID_ERROR"
	out := []xidRule{
		{allWatch, 79, "DCGM_FR_FALLEN_OFF_BUS", healthFail},
		{allWatch, 95, "DCGM_FR_UNCONTAINED_ERROR", healthFail},
		{allWatch, 48, other, healthFail},
		{allWatch, 74, other, healthFail},
		{allWatch, 119, other, healthFail},
		{allWatch, 120, other, healthFail},
		{allWatch, 140, other, healthFail},
		{allWatch, 94, "DCGM_FR_CONTAINED_ERROR", healthWarn},

		{"MEM", 64, rowRemapFailure, healthFail},
		{"MEM", 63, pendingRetirements, healthWarn},
		{"THERMAL", 60, slowedByHeat, healthWarn},
		{"POWER", 57, slowedByPower, healthWarn},
	}
	if arch == nvml.DEVICE_ARCH_VOLTA {
		out = append(out, xidRule{"INFOROM", 93, corruptInfoROM, healthWarn})
	}
	for _, w := range [...]struct {
		watch string
		xids  []uint64
	}{
		{"PCIE", []uint64{38, 39, 42}},
		{"NVLINK", []uint64{67, 73, 121, 137}},
		{"MEM", []uint64{31, 32, 43}},
		{"THERMAL", []uint64{61, 62}},
		{"POWER", []uint64{54, 56, 58, 78}},
	} {
		for _, xid := range w.xids {
			out = append(out, xidRule{w.watch, xid, other, healthWarn})
		}
	}
	return out
}

// known returns NaN if v is blank, result if is holds, and pass otherwise.
func known(v float64, is bool, result float64) float64 {
	switch {
	case math.IsNaN(v):
		return v
	case is:
		return result
	}
	return healthPass
}

// unreadable warns if a reading that had a value is blank now.
func unreadable() judge {
	had := false
	return func(in, _ []float64) float64 {
		missing := math.IsNaN(in[0])
		had = had || !missing
		switch {
		case !missing:
			return healthPass
		case had:
			return healthWarn
		}
		return math.NaN()
	}
}

// bitErrors decides on the encoded rate of all links together. If the driver reports rates per link only, it compares
// the worst link's rate with limit.
func bitErrors(isBad func(mantissa, exponent uint64) bool, limit float64) judge {
	return func(in, _ []float64) float64 {
		if in[0] >= 0 && in[0] <= bitErrorMask {
			return known(in[0], isBad(bitErrorParts(in[0])), healthFail)
		}
		return known(in[1], in[1] > limit, healthFail)
	}
}

// effectiveBERIsBad reports whether a rate is above 1e-12 (IsEffectiveBerThresholdExceeded of DCGM's
// common/DcgmUtilities.cpp, which also rejects a mantissa of 0). All bits set mean no value.
func effectiveBERIsBad(mantissa, exponent uint64) bool {
	return mantissa > 0 && (exponent < 12 || exponent == 12 && mantissa > 1 || exponent == 13 && mantissa > 10)
}

// symbolBERIsBad reports whether a rate is above the minimum that the hardware can report, because no symbol error is
// acceptable. Since Blackwell, the minimum for all links together is 15e-238.
func symbolBERIsBad(arch nvml.DeviceArchitecture) func(mantissa, exponent uint64) bool {
	least := uint64(255) // minimum of one link
	if arch >= nvml.DEVICE_ARCH_BLACKWELL && arch != nvml.DEVICE_ARCH_UNKNOWN {
		least = 238
	}
	return func(mantissa, exponent uint64) bool { return mantissa > 0 && exponent < least }
}

// judgeReplays allows the bit error rate of PCIe's specification, 1e-12. Each bit error costs a replay.
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
	return known(sum, sum >= maxRetiredPages, healthFail)
}

// judgeFabric decodes the mask NVML_GPU_FABRIC_HEALTH_MASK_* of nvml.h: two bits each for bandwidth, route recovery,
// route and access time-outs, where 1 means trouble, then four bits where 1 means a correct configuration. 0 means
// that the GPU does not know; a mask of zeros only gives no result.
func judgeFabric(in, _ []float64) float64 {
	if !(in[0] >= 0) || uint64(in[0])&0xfff == 0 {
		return math.NaN()
	}
	mask := uint64(in[0])
	bad := mask>>8&0xf > 1
	for shift := 0; shift < 8; shift += 2 {
		bad = bad || mask>>shift&3 == 1
	}
	return known(in[0], bad, healthFail)
}

// judgeFabricManager decodes DCGM's state: 0 means that the GPU is in no fabric, 2 starting, 3 started. All other
// states are failures: not started, failed, unrecognised.
func judgeFabricManager(in, _ []float64) float64 {
	switch state := in[0]; {
	case math.IsNaN(state), state == 0:
		return math.NaN()
	case state == 3:
		return healthPass
	case state == 2:
		return healthWarn
	}
	return healthFail
}
