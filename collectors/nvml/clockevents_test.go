//go:build linux && cgo

package nvml

import (
	"math/bits"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"warpgauge/pkg/field"
)

// TestClockReasons checks that NVML's bits equal DCGM's, so DCGM_FI_DEV_CLOCKS_EVENT_REASONS and the counts derived
// from it need no translation.
func TestClockReasons(t *testing.T) {
	reasons := map[uint64]string{
		nvml.ClocksEventReasonGpuIdle:                   "gpu_idle",
		nvml.ClocksEventReasonApplicationsClocksSetting: "clocks_setting",
		nvml.ClocksEventReasonSwPowerCap:                "power_cap",
		nvml.ClocksThrottleReasonHwSlowdown:             "hw_slowdown",
		nvml.ClocksEventReasonSyncBoost:                 "sync_boost",
		nvml.ClocksEventReasonSwThermalSlowdown:         "sw_thermal",
		nvml.ClocksThrottleReasonHwThermalSlowdown:      "hw_thermal",
		nvml.ClocksThrottleReasonHwPowerBrakeSlowdown:   "hw_power_brake",
		nvml.ClocksEventReasonDisplayClockSetting:       "display_clocks",
	}
	for mask, want := range reasons {
		if got, ok := field.ClockReason(bits.TrailingZeros64(mask)); !ok || got != want {
			t.Errorf("bit %#x is %q, want %q", mask, got, want)
		}
	}
	if len(reasons) != field.ClockReasons {
		t.Errorf("NVML has %d reasons, DCGM %d", len(reasons), field.ClockReasons)
	}
}
