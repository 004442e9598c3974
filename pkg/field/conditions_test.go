package field

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"warpgauge/internal/testkit"
)

var (
	start = time.Unix(1_700_000_000, 0)
	nan   = math.NaN()
)

func TestEvaluate(t *testing.T) {
	f := func(what string, c Condition, every time.Duration, values []float64, want string) {
		t.Helper()
		var s ConditionState
		var got []string
		for i, v := range values {
			got = append(got, [...]string{"-", "w", "m", "b"}[c.Evaluate(&s, v, start.Add(time.Duration(i)*every))])
		}
		testkit.Equal(t, fmt.Sprintf("%s: values %v", what, values), want, strings.Join(got, ""))
	}
	f("at least", Condition{Test: AtLeast, Threshold: 2}, time.Second, []float64{1, 2, 3, nan}, "wbb-")
	f("at least, with hysteresis", Condition{Test: AtLeast, Threshold: 4, Clear: 2}, time.Second, []float64{1, 2, 3, 4, 3, 2, nan}, "wwmbmw-")
	f("at least, well after a time", Condition{Test: AtLeast, Threshold: 4, Clear: 2, Within: time.Minute}, 30*time.Second, []float64{1, 4, 1, 3, 1}, "-bwmw")
	f("at most", Condition{Test: AtMost, Threshold: 2}, time.Second, []float64{1, 2, 3, nan}, "bbw-")
	f("equal", Condition{Test: Equal, Threshold: 2}, time.Second, []float64{1, 2, 3, nan}, "wbw-")
	f("a link that never was up", Condition{Test: Falls, Threshold: 1}, time.Second, []float64{0, nan, 0}, "---")
	f("a link that was up", Condition{Test: Falls, Threshold: 1}, time.Second, []float64{0, 1, nan, 0, 0, 1}, "-w-bbw")
	f("growth", Condition{Test: Rises, Threshold: 10, Within: time.Minute}, 20*time.Second, []float64{5, 10, 15, 20, 20, 20, 20}, "-wbbbww")
	f("a counter that is 0", Condition{Test: Rises, Threshold: 10, Within: time.Minute}, 20*time.Second, []float64{0, 10}, "wb")
	f("a counter that was reset", Condition{Test: Rises, Threshold: 10, Within: time.Minute}, 20*time.Second, []float64{100, 5, 9, 15}, "--wb")
	f("readings far apart", Condition{Test: Rises, Threshold: 10, Within: time.Minute}, 2*time.Minute, []float64{100, 119, 139, 140}, "-wbw")
	f("what is seen elsewhere", Condition{Test: Observed, Threshold: 1}, time.Second, []float64{5}, "-")
}

// TestGrowthIsBounded: at any rate of readings, the past covers at most a span and a quarter.
func TestGrowthIsBounded(t *testing.T) {
	for _, every := range []time.Duration{10 * time.Millisecond, time.Second, 7 * time.Second, 30 * time.Second} {
		for _, span := range []time.Duration{time.Minute, time.Hour} {
			var g Growth
			n := int(3 * span / every)
			var last float64
			for i := range n {
				last = g.Add(span, start.Add(time.Duration(i)*every), float64(i)) // grows by one each time
			}
			per := float64(span / every)
			testkit.ErrorIf(t, last < per*0.8 || last > per*1.25, "readings each %v, span %v: growth %v, want about %v", every, span, last, per)
		}
	}
	testkit.Equal(t, "allocations", 0.0, testing.AllocsPerRun(100, func() { var g Growth; g.Add(time.Minute, start, 1) }))
}

func TestRestart(t *testing.T) {
	var g Growth
	g.Add(time.Minute, start, 0)
	g.Restart(start.Add(time.Second), 500)
	testkit.Equal(t, "growth after a restart", 1.0, g.Add(time.Minute, start.Add(2*time.Second), 501))
	testkit.Equal(t, "growth after the clock was set back is unknown", true, math.IsNaN(g.Add(time.Minute, start.Add(-time.Hour), 502)))
}

// TestReadingsHaveNames: each constant has the field of its name.
func TestReadingsHaveNames(t *testing.T) {
	for id, part := range map[ID]string{
		InfoROMValid: "INFOROM", SMClock: "SM_CLOCK", GPUTemperature: "GPU_TEMP", PowerUsage: "POWER_USAGE", TotalEnergy: "TOTAL_ENERGY",
		FabricManagerStatus: "FABRIC_MANAGER_STATUS", FabricHealthMask: "FABRIC_HEALTH_MASK", FabricHealthSummary: "FABRIC_HEALTH_SUMMARY",
		PCIeReplays: "PCIE_REPLAY", GPUUtilization: "GPU_UTIL", PCIeGeneration: "LINK_GEN", PCIeWidth: "LINK_WIDTH",
		PowerViolation: "POWER_VIOLATION", ThermalViolation: "THERMAL_VIOLATION", CorrectedErrors: "ECC_SBE_VOL_TOTAL",
		UncorrectedErrors: "ECC_DBE_VOL_TOTAL", CorrectedSRAMErrors: "ECC_SBE_VOL_SRM",
		SRAMThresholdExceeded: "THRESHOLD_SRM", SpareRowsNone: "AVAIL_NONE", RetiredPagesCorrected: "RETIRED_SBE",
		RetiredPagesUncorrected: "RETIRED_DBE", RetiredPagesPending: "RETIRED_PENDING", RemappedRows: "UNCORRECTABLE_REMAPPED_ROWS",
		RowRemapFailure: "ROW_REMAP_FAILURE", RowRemapPending: "ROW_REMAP_PENDING", SwitchFatalErrors: "NVSWITCH_FATAL_ERRORS",
		SwitchLinkStatus: "NVSWITCH_LINK_STATUS", EngineActive: "GR_ENGINE_ACTIVE", SMActive: "SM_ACTIVE", TensorActive: "TENSOR_ACTIVE",
		MemoryUnrepairable: "MEMORY_UNREPAIRABLE", RecoveryAction: "RECOVERY_ACTION",
		NVLinksFlitErrors: "CRC_FLIT_ERROR_COUNT_TOTAL", NVLinksDataErrors: "CRC_DATA_ERROR_COUNT_TOTAL", NVLinksReplays: "REPLAY_ERROR_COUNT_TOTAL",
		NVLinksRecoveries: "RECOVERY_ERROR_COUNT_TOTAL", NVLinksCRCRate: "DL_CRC", NVLinksRecoverRate: "DL_RECOVERY", NVLinksReplayRate: "DL_REPLAY",
		NVLinks5Malformed: "MALFORMED", NVLinks5Overruns: "OVERRUN", NVLinks5Errors: "RX_ERRORS", NVLinks5RemoteErrors: "REMOTE_ERRORS",
		NVLinks5GeneralErrors: "GENERAL_ERRORS", NVLinks5IntegrityErrors: "INTEGRITY", NVLinks5Recovered: "RECOVERY_SUCCESSFUL",
		NVLinks5RecoveriesFailed: "RECOVERY_FAILED", NVLinks5Recoveries: "RECOVERY_EVENTS", NVLinks5SymbolErrors: "SYMBOL_ERRORS",
		NVLinks5SymbolBER:    "SYMBOL_BER_FLOAT",
		NVLinks5EffectiveBER: "EFFECTIVE_BER_FLOAT", NVLinks5EffectiveErrors: "EFFECTIVE_ERRORS", NVLinks5UncorrectedErrors: "ECC_DATA_ERROR",
		PerLinkFlitErrors: "CRC_FLIT_ERROR_PER_LINK", PerLinkDataErrors: "CRC_DATA_ERROR_PER_LINK", PerLinkReplays: "REPLAY_ERROR_PER_LINK",
		PerLinkRecoveries: "RECOVERY_ERROR_PER_LINK",
	} {
		d, ok := ByID(id)
		testkit.ErrorIf(t, !ok || !strings.Contains(d.Name, part), "reading %d is %s, want one with %s", id, fmt.Sprint(d), part)
	}
}
