package field

import (
	"math/bits"
	"time"
)

// Condition describes readings of a faulty device: the reading, the threshold and the time. Evaluate evaluates each
// reading separately. NVML's health watches and the verdicts and early signs of extensions/health use the conditions
// below, so that they apply the same limits. Five watches that combine several readings are functions of collectors/nvml.
// The users of a condition define its meaning: a failed watch, a verdict, an action.
type Condition struct {
	Readings  []ID
	Test      Test
	Threshold float64
	Limit     ID // a reading of the same device: its newest value replaces Threshold once it has one
	// Within is the time in which a counter Rises. For AtLeast, it is the time that readings must cover
	// before a low value clears the condition.
	Within time.Duration
	// Clear is the value at which AtLeast ends. Values between Clear and the threshold change nothing. 0:
	// AtLeast ends below the threshold.
	Clear   float64
	Derived Derived // the evaluated reading; its values are computed from Readings
}

// Derived names a reading that no library has. It is computed from a device's readings.
type Derived uint8

// Derived readings. docs/health.md says how each is computed.
const (
	NotDerived Derived = iota
	LinkBudgetUsed
	ThrottledTime // seconds
	ClockLag      // share
	DerivedReadings
)

func (d Derived) String() string {
	return [DerivedReadings]string{
		LinkBudgetUsed: "the share of an hour's budget of errors that the worst link has used",
		ThrottledTime:  "the number of seconds of the last hour with clocks held down",
		ClockLag:       "the share by which the clock is below the median of GPUs with the same work",
	}[d]
}

// Test is the comparison of a reading with the threshold.
type Test uint8

// Tests.
const (
	Observed Test = iota // no reading
	OfState              // the state of a device or its collector, from the session
	AtLeast              // the value is the threshold or more
	AtMost               // the value, often an age, is at most the threshold
	Equal                // the value is the threshold
	Rises                // the counter has grown by the threshold or more Within a time
	Falls                // the value is below the threshold, and was not before
)

func flag(id ID) Condition {
	return Condition{Readings: []ID{id}, Test: AtLeast, Threshold: 1}
}

func equals(id ID, v float64) Condition {
	return Condition{Readings: []ID{id}, Test: Equal, Threshold: v}
}

// CRCErrorsPerSecond is the rate above which CRC errors of links matter, according to NVIDIA's driver
// developers (cited in DCGM).
const CRCErrorsPerSecond = 100

// EffectiveBER is the bit error rate of a link that DCGM accepts.
const EffectiveBER = 1e-12

// Memory. The limits come from DCGM (common/DcgmGPUHardwareLimits.h).
var (
	RowRemapFailed         = flag(RowRemapFailure)
	NoSpareRows            = flag(SpareRowsNone)
	RowRemapAwaited        = flag(RowRemapPending)
	UnrepairableMemory     = flag(MemoryUnrepairable)
	SRAMThreshold          = flag(SRAMThresholdExceeded)
	AnyUncorrectedError    = flag(UncorrectedErrors)
	PageRetirementPending  = flag(RetiredPagesPending)
	ManyUncorrectablePages = Condition{Readings: []ID{RetiredPagesUncorrected}, Test: AtLeast, Threshold: 16}
	// Limits of Azure's node health checks (Azure/azurehpc#649) for SRAM, and for all memory.
	ManyCorrectedSRAM = Condition{Readings: []ID{CorrectedSRAMErrors}, Test: Rises, Threshold: 10_000, Within: 24 * time.Hour}
	ManyCorrected     = Condition{Readings: []ID{CorrectedErrors}, Test: Rises, Threshold: 10_000_000, Within: 24 * time.Hour}
	ManyRemappedRows  = Condition{Readings: []ID{RemappedRows}, Test: AtLeast, Threshold: 512}
)

// Actions that the driver recommends (nvmlDeviceGetFieldValues, NVML_FI_DEV_GET_GPU_RECOVERY_ACTION).
var (
	RecoveryReset      = equals(RecoveryAction, 1)
	RecoveryReboot     = equals(RecoveryAction, 2)
	RecoveryDrainP2P   = equals(RecoveryAction, 3)
	RecoveryDrainReset = equals(RecoveryAction, 4)
)

// Links and switches.
var (
	LinkCRCErrors = Condition{
		Readings: []ID{NVLinksFlitErrors, NVLinksDataErrors}, Test: Rises, Threshold: 60 * CRCErrorsPerSecond, Within: time.Minute,
	}
	LinkCRCError = Condition{Readings: LinkCRCErrors.Readings, Test: Rises, Threshold: 1, Within: time.Minute}
	LinkReplay   = Condition{Readings: []ID{NVLinksReplays, NVLinksRecoveries}, Test: Rises, Threshold: 1, Within: time.Minute}
	LinkErrorNow = Condition{Readings: []ID{NVLinksCRCRate, NVLinksRecoverRate, NVLinksReplayRate}, Test: AtLeast, Threshold: 1}
	Link5Error   = Condition{
		Readings: []ID{
			NVLinks5Malformed, NVLinks5Overruns, NVLinks5Errors, NVLinks5RemoteErrors, NVLinks5GeneralErrors,
			NVLinks5IntegrityErrors, NVLinks5Recoveries, NVLinks5SymbolErrors, NVLinks5EffectiveErrors, NVLinks5UncorrectedErrors,
		},
		Test: Rises, Threshold: 1, Within: time.Minute,
	}
	// LinkEffectiveBER is above EffectiveBER, in the rates that NVML can express.
	LinkEffectiveBER = Condition{Readings: []ID{NVLinks5EffectiveBER}, Test: AtLeast, Threshold: 1.1 * EffectiveBER}
	// LinkSymbolBER is above the minimum that the hardware can report, because no symbol error is acceptable: 15e-255 for
	// a link and, since Blackwell, 15e-238 for all links together.
	LinkSymbolBER       = Condition{Readings: []ID{NVLinks5SymbolBER}, Test: AtLeast, Threshold: 16e-238}
	Link5RecoveryFailed = flag(NVLinks5RecoveriesFailed)
	Link5Recovered      = flag(NVLinks5Recovered)
	SwitchFatalError    = flag(SwitchFatalErrors)
	SwitchPortError     = equals(SwitchLinkStatus, 3)
	FabricFailed        = Condition{Readings: []ID{FabricManagerStatus}, Test: AtLeast, Threshold: 4} // also unrecognised, and a library that is too old
	FabricNotStarted    = equals(FabricManagerStatus, 1)
	FabricUnhealthy     = equals(FabricHealthSummary, 2)
	FabricLimited       = equals(FabricHealthSummary, 3)
)

// Heat, power and the board.
var (
	InfoROMCorrupt = equals(InfoROMValid, 0)
	Hot            = Condition{Readings: []ID{GPUTemperature}, Test: AtLeast, Threshold: 95, Limit: SlowdownTemperature}
	SlowedByHeat   = Condition{Readings: []ID{ThermalViolation}, Test: Rises, Threshold: 1, Within: time.Minute}
	SlowedByPower  = Condition{Readings: []ID{PowerViolation}, Test: Rises, Threshold: 1, Within: time.Minute}
)

// ThrottlingReasons are the clock event reasons that are a fault if they last: hw_slowdown, sw_thermal, hw_thermal and
// hw_power_brake. The other reasons are idleness, settings, or a limit that a busy GPU always reaches.
const ThrottlingReasons = 1<<3 | 1<<5 | 1<<6 | 1<<7

// Throttles reports whether a clock event reason is one of ThrottlingReasons.
func Throttles(reason string) bool {
	for mask := uint(ThrottlingReasons); mask != 0; mask &= mask - 1 {
		if name, _ := ClockReason(bits.TrailingZeros(mask)); name == reason {
			return true
		}
	}
	return false
}

// Budgets of early signs: the maximum for a healthy device within a time. docs/health.md explains how each is
// computed, and when a healthy device exceeds it.
const (
	// DCGM calls a replay or another error of a link in the last minute critical: one in each minute of an
	// hour spends the budget. A recovery stops the link: one in six minutes spends the budget.
	LinkCRCErrorsPerHour  = 3600 * CRCErrorsPerSecond
	LinkErrorsPerHour     = 60
	LinkRecoveriesPerHour = 10
)

// Early signs.
var (
	LinkBudgetSpent = Condition{
		Readings: []ID{
			NVLinksFlitErrors, NVLinksDataErrors, NVLinksReplays, NVLinksRecoveries,
			NVLinks5Errors, NVLinks5Recoveries, NVLinks5EffectiveBER, NVLinks5EffectiveErrors,
		},
		Derived: LinkBudgetUsed, Test: AtLeast, Threshold: 1, Clear: 0.5, Within: time.Hour,
	}
	Throttled = Condition{
		Readings: []ID{ClockEventReasons}, Derived: ThrottledTime, Test: AtLeast, Threshold: 15 * 60, Clear: 5 * 60, Within: time.Hour,
	}
	// Straggler: GPUs of one model and cluster differ by up to 22 % under the same load (Sinha et al., SC22, arXiv
	// 2208.11035).
	Straggler = Condition{Readings: []ID{SMClock, GPUUtilization}, Derived: ClockLag, Test: AtLeast, Threshold: 0.25, Clear: 0.125}
)
