//go:build linux && cgo

package nvml

import (
	"math"
	"strings"
	"testing"

	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/pkg/collector/collectortest"
)

// reasonsCSV are fields that A100s of driver 470 have no value of, each for another reason.
const reasonsCSV = `DCGM_FI_DEV_GPU_TEMP, gauge, t
DCGM_FI_DEV_FAN_SPEED, gauge, f
DCGM_FI_DEV_GPU_TEMP_LIMIT, gauge, m
DCGM_FI_DEV_POWER_USAGE, gauge, p
DCGM_FI_DEV_GPU_UTIL, gauge, u
DCGM_FI_PROF_SM_ACTIVE, gauge, s
DCGM_FI_DEV_POWER_USAGE_INSTANT, gauge, i
DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL, gauge, n
DCGM_FI_DEV_DIAG_MEMORY_RESULT, gauge, d
amd_gpu_voltage_volts, gauge, v
`

// TestReasons: what the library lacks, what the GPU lacks, what others have, and what is
// blank now, each with its reason.
func TestReasons(t *testing.T) {
	if nvmltest.OwnProcess(t) { // which is bound to no other library
		return
	}
	n := nvmltest.New(t, nvmltest.Config{Preset: "a100-sxm", GPUs: 1, Driver: "470"})
	c := New(Options{Library: n.Library(), Root: n.Root()})
	sources, err := c.Open(t.Context(), listOf(t, reasonsCSV))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := sources[0]
	f := func(name, want string) {
		t.Helper()
		row, due := make([]float64, len(s.Columns())), make([]bool, len(s.Columns()))
		for i := range due {
			row[i], due[i] = math.NaN(), true
		}
		if err := s.Sample(row, due); err != nil {
			t.Fatal(err)
		}
		if got := collectortest.ReasonOf(t, s, row, 0, name); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	f("DCGM_FI_DEV_GPU_TEMP", "")
	f("DCGM_FI_DEV_FAN_SPEED", "unsupported: nvmlDeviceGetFanSpeed: ")
	f("DCGM_FI_DEV_GPU_TEMP_LIMIT", "no_symbol: driver 470")
	f("DCGM_FI_PROF_SM_ACTIVE", "no_symbol: driver 470")
	f("DCGM_FI_DEV_POWER_USAGE_INSTANT", "unsupported: field 186 of nvmlDeviceGetFieldValues: ")
	f("DCGM_FI_DEV_DIAG_MEMORY_RESULT", "other_collector: NVML does not have it, the collector dcgm may")
	f("amd_gpu_voltage_volts", "unsupported: only AMD GPUs have it")

	f("DCGM_FI_DEV_POWER_USAGE", "")
	n.Return(0, "nvmlDeviceGetPowerUsage", "NO_PERMISSION")
	f("DCGM_FI_DEV_POWER_USAGE", "permission: NVML refuses it to this user: it takes root")
	n.Return(0, "nvmlDeviceGetPowerUsage", "TIMEOUT")
	f("DCGM_FI_DEV_POWER_USAGE", `blank: NVML answers "`)
	n.Return(0, "nvmlDeviceGetUtilizationRates", "NOT_SUPPORTED")
	f("DCGM_FI_DEV_GPU_UTIL", "unsupported: NVML says that it is not supported now")
	n.Clear(0)
	f("DCGM_FI_DEV_POWER_USAGE", "")
}

// TestReasonsOfGPM: a mean takes two samples, and older boards have none of it.
func TestReasonsOfGPM(t *testing.T) {
	f := func(preset string, want ...string) {
		t.Helper()
		n := nvmltest.New(t, nvmltest.Config{Preset: preset, GPUs: 1})
		c := New(Options{Library: n.Library(), Root: n.Root()})
		sources, err := c.Open(t.Context(), listOf(t, "DCGM_FI_PROF_SM_ACTIVE, gauge, s\nDCGM_FI_DEV_GPU_TEMP, gauge, t\n"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for i, want := range want {
			if i == 1 {
				n.Return(0, "nvmlGpmSampleGet", "NO_PERMISSION")
				for _, p := range sources[0].(*source).parts {
					if gpm, ok := p.part.(*gpmPart); ok {
						gpm.groups[0].sampled = false // not to wait for the time between two samples
					}
				}
			}
			row := sampleAll(t, sources)[0]
			if got := collectortest.ReasonOf(t, sources[0], row, 0, "DCGM_FI_PROF_SM_ACTIVE"); !strings.HasPrefix(got, want) {
				t.Errorf("%s, sample %d: %q, want %q", preset, i, got, want)
			}
		}
	}
	f("h100-sxm", "not_due: it is made of two samples", "permission: NVML refuses it")
	f("a100-sxm", "other_collector: the GPU has no GPM")
}
