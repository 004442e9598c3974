//go:build linux && cgo

package dcgm

import (
	"strings"
	"testing"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/pkg/collector/collectortest"
	"warpgauge/pkg/field"
)

// TestReasons: each of DCGM's blanks and statuses has its reason, whatever the type of the
// field.
func TestReasons(t *testing.T) {
	const clock = "DCGM_FI_DEV_SM_CLOCK"
	e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 1})
	c := open1(t, remote(e), temperature, clock, "DCGM_FI_DEV_POWER_USAGE", "nvidia_gpu_jpeg_busy_ratio", "amd_gpu_voltage_volts", "DCGM_EXP_P2P_STATUS")
	f := func(name string, v dcgmtest.Value, want string) {
		t.Helper()
		d, _, _ := field.ByName(name)
		e.Set(dcgmtest.GPU(0), int(d.ID), v)
		c.mustSample(t)
		s, device := c.device(t, nvmltest.UUID(0))
		if got := collectortest.ReasonOf(t, c.sources[s], c.row[s], device, name); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s of %+v: %q, want %q", name, v, got, want)
		}
	}
	for _, name := range []string{clock, "DCGM_FI_DEV_POWER_USAGE"} { // an integer and a floating point number
		f(name, dcgmtest.Number(7), "")
		f(name, dcgmtest.Blank(dcgmtest.Null), "blank: the host engine has a blank")
		f(name, dcgmtest.Blank(dcgmtest.NotFound), "blank: the host engine has not found it")
		f(name, dcgmtest.Blank(dcgmtest.NotSupported), "unsupported: the host engine says")
		f(name, dcgmtest.Blank(dcgmtest.NotPermitted), "permission: the driver refuses it to the host engine")
		f(name, dcgmtest.Status(-6), "unsupported: the host engine answers: not supported [DCGM -6]")
		f(name, dcgmtest.Status(-17), "permission: the host engine answers: no permission [DCGM -17]")
		f(name, dcgmtest.Status(-54), "blank: the host engine answers: profiling is paused [DCGM -54]")
		f(name, dcgmtest.Status(-33), "unsupported: the host engine answers: module not loaded [DCGM -33]")
		f(name, dcgmtest.Number(8), "")
	}
	s, device := c.device(t, nvmltest.UUID(0))
	for name, want := range map[string]string{
		"nvidia_gpu_jpeg_busy_ratio": "other_collector: DCGM does not have it, the collector nvml may",
		"amd_gpu_voltage_volts":      "unsupported: only AMD GPUs have it",
		"DCGM_EXP_P2P_STATUS":        "unsupported: there is no other GPU",
	} {
		if got := collectortest.ReasonOf(t, c.sources[s], c.row[s], device, name); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestReasonsOfWhatIsNotOffered: the engine's answer is the reason.
func TestReasonsOfWhatIsNotOffered(t *testing.T) {
	e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 1})
	e.RefuseProfiling(-36)
	c := open1(t, remote(e), temperature, "DCGM_FI_PROF_SM_ACTIVE")
	c.mustSample(t)
	if got, want := collectortest.ReasonOf(t, c.sources[0], c.row[0], 0, "DCGM_FI_PROF_SM_ACTIVE"), "unsupported: the host engine answers: profiling is not supported [DCGM -36]"; got != want {
		t.Errorf("profiling: %q, want %q", got, want)
	}
}
