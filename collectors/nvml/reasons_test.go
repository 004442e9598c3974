//go:build linux && cgo

package nvml

import (
	"strings"
	"testing"

	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector/collectortest"
)

// TestReasons compares the reasons of fields that the library lacks, that the GPU lacks, that other collectors have,
// and that are blank now.
func TestReasons(t *testing.T) {
	if nvmltest.OwnProcess(t) { // a process without a library
		return
	}
	n := nvmltest.New(t, nvmltest.Config{Preset: "a100-sxm", GPUs: 1, Driver: "470"})
	n.Return(0, "nvmlDeviceRegisterEvents", "UNKNOWN")
	s := openReadings(t, n, "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_FAN_SPEED", "DCGM_FI_DEV_GPU_TEMP_LIMIT", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_UTIL",
		"DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_DEV_POWER_USAGE_INSTANT", "DCGM_FI_DEV_DIAG_MEMORY_RESULT", "DCGM_FI_DEV_XID_ERRORS", "amd_gpu_voltage_volts")[0]
	f := func(name, want string) {
		t.Helper()
		must(t, s.sample())
		got := collectortest.ReasonOf(t, s.Source, s.row, 0, name)
		testkit.ErrorIf(t, !strings.HasPrefix(got, want) || want == "" && got != "", "%s: %q, want %q", name, got, want)
	}
	f("DCGM_FI_DEV_GPU_TEMP", "")
	f("DCGM_FI_DEV_FAN_SPEED", "unsupported: nvmlDeviceGetFanSpeed: ")
	f("DCGM_FI_DEV_GPU_TEMP_LIMIT", "no_symbol: driver 470")
	f("DCGM_FI_PROF_SM_ACTIVE", "no_symbol: driver 470")
	f("DCGM_FI_DEV_POWER_USAGE_INSTANT", "unsupported: field 186 of nvmlDeviceGetFieldValues: ")
	f("DCGM_FI_DEV_DIAG_MEMORY_RESULT", "other_collector: NVML does not have it, the collector dcgm may")
	f("DCGM_FI_DEV_XID_ERRORS", "blank: NVML opens no event set for the XIDs of this GPU: ")
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

// TestReasonsOfGPM compares the reasons before the second sample, of a metric newer than the driver and alone in its
// interval, and on boards without GPM.
func TestReasonsOfGPM(t *testing.T) {
	f := func(preset, name string, want ...string) {
		t.Helper()
		n := nvmltest.New(t, nvmltest.Config{Preset: preset, GPUs: 1})
		n.Set(0, "gpm[102]", "!INVALID_ARGUMENT") // as a driver that lacks it answers
		_, sources := openList(t, at(n), listOf(t, csvOf([]string{name, "DCGM_FI_DEV_GPU_TEMP"})+"DCGM_FI_PROF_DRAM_ACTIVE, gauge, x, interval=100ms\n"))
		for i, want := range want {
			if i == 1 {
				n.Return(0, "nvmlGpmSampleGet", "NO_PERMISSION")
				for _, g := range partOf[*gpmPart](sources[0]).groups {
					g.sampled = false // avoids the wait between two samples
				}
			}
			row := sampleAll(t, sources)[0]
			got := collectortest.ReasonOf(t, sources[0], row, 0, name)
			testkit.ErrorIf(t, !strings.HasPrefix(got, want), "%s, sample %d: %q, want %q", preset, i, got, want)
		}
	}
	f("h100-sxm", "DCGM_FI_PROF_SM_ACTIVE", "not_due: it is made of two samples", "permission: NVML refuses it")
	f("h100-sxm", "DCGM_FI_PROF_C2C_TX_ALL_BYTES", "unsupported: GPM does not offer it")
	f("h100-sxm", "DCGM_FI_PROF_C2C_TX_DATA_BYTES", "no_symbol: driver 580.65.06 lacks metric 102 of GPM")
	f("a100-sxm", "DCGM_FI_PROF_SM_ACTIVE", "other_collector: the GPU has no GPM")
}
