package main

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"warpgauge/collectors/fake"
	"warpgauge/etc"
	"warpgauge/pkg/config"
)

// counters49 has the fields of dcgm-exporter 4.9's default list, by the release notes of
// 4.9.0: the 23 new names, what kept its name, and the size of device memory, which is new
// in it. The help texts are ours.
const counters49 = `DCGM_FI_DEV_SM_CLOCK_HERTZ, gauge, SM clock in Hz.
DCGM_FI_DEV_MEMORY_CLOCK_HERTZ, gauge, Memory clock in Hz.
DCGM_FI_DEV_MEMORY_TEMP_CELSIUS, gauge, Memory temperature.
DCGM_FI_DEV_GPU_TEMP_CELSIUS, gauge, GPU temperature.
DCGM_FI_DEV_BOARD_POWER_WATTS, gauge, Power draw.
DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL, counter, Energy.
DCGM_FI_DEV_PCIE_REPLAY_TOTAL, counter, PCIe replays.
DCGM_FI_DEV_GPU_UTIL_RATIO, gauge, GPU utilisation.
DCGM_FI_DEV_MEMORY_UTIL_RATIO, gauge, Memory utilisation.
DCGM_FI_DEV_ENC_UTIL_RATIO, gauge, Encoder.
DCGM_FI_DEV_DEC_UTIL_RATIO, gauge, Decoder.
DCGM_FI_DEV_XID_ERROR, gauge, Last XID.
DCGM_FI_DEV_FB_CAPACITY_BYTES, gauge, Device memory.
DCGM_FI_DEV_FB_FREE_BYTES, gauge, Free device memory.
DCGM_FI_DEV_FB_USED_BYTES, gauge, Used device memory.
DCGM_FI_DEV_FB_RESERVED_BYTES, gauge, Reserved device memory.
DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND, gauge, NVLink throughput.
DCGM_FI_DEV_VGPU_LICENSE_STATUS, gauge, vGPU licence.
DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL, counter, Rows remapped.
DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL, counter, Rows remapped.
DCGM_FI_DEV_ROW_REMAP_FAILED, gauge, Whether remapping failed.
DCGM_FI_SYSTEM_DRIVER_VERSION, label, Driver version.
DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO, gauge, Engine active.
DCGM_FI_PROF_TENSOR_UTIL_RATIO, gauge, Tensor pipe active.
DCGM_FI_PROF_DRAM_UTIL_RATIO, gauge, Memory active.
DCGM_FI_PROF_PCIE_TX_BYTES, gauge, Sent over PCIe.
DCGM_FI_PROF_PCIE_RX_BYTES, gauge, Received over PCIe.
`

// TestListsOfBothGenerations: a simulated node has the same page, whichever of the two
// default lists it has and in whatever names that is written, once --field-names says what
// is wanted. Help texts are the lists'.
func TestListsOfBothGenerations(t *testing.T) {
	counters48 := string(etc.DefaultCounters()) + "DCGM_FI_DEV_FB_TOTAL, gauge, Device memory.\n"
	pageOf := func(csv, names string) (page []string) {
		t.Helper()
		cfg := config.Default()
		cfg.FieldNames, cfg.Strict = names, true
		list := parseCSV(t, cfg, csv)
		synctest.Test(t, func(t *testing.T) {
			factory, err := fake.Factory(fake.Options{Profile: "dgx-h100", Devices: 2})
			must(t, err)
			text, _, _ := simulate(t, factory, list, func(int) {})
			for line := range strings.Lines(string(text)) {
				if !strings.HasPrefix(line, "# HELP ") && line != "# TYPE DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL gauge\n" && line != "# TYPE DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL counter\n" {
					page = append(page, line)
				}
			}
		})
		slices.Sort(page)
		return page
	}
	same := func(what string, want, got []string) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	old, latest := pageOf(counters48, "as-written"), pageOf(counters49, "as-written")
	if len(old) < 60 || len(latest) != len(old)+1 { // one TYPE line of old is left out
		t.Fatalf("%d lines of old names, %d of new ones", len(old), len(latest))
	}
	same("the old list under old names", old, pageOf(counters48, "old"))
	same("the new list under old names", old, pageOf(counters49, "old"))
	same("the new list under new names", latest, pageOf(counters49, "new"))
	same("the old list under new names", latest, pageOf(counters48, "new"))

	// With both labels, which are the only difference to the two pages.
	const oldLabel, newLabel = `DCGM_FI_DRIVER_VERSION=`, `DCGM_FI_SYSTEM_DRIVER_VERSION=`
	both := append(slices.Clone(old), latest...)
	for i, line := range both {
		for _, l := range []string{oldLabel, newLabel} {
			if before, value, ok := strings.Cut(line, ","+l); ok {
				value, after, _ := strings.Cut(value[1:], `"`)
				both[i] = before + "," + oldLabel + `"` + value + `",` + newLabel + `"` + value + `"` + after
			}
		}
	}
	slices.Sort(both)
	both = slices.Compact(both)
	same("the old list under both", both, pageOf(counters48, "both"))
	same("the new list under both", both, pageOf(counters49, "both"))
}

// TestAMDNamesOfANode: AMD's names come next to ours, which stay as they are, or in their place;
// a node without AMD's GPUs has none.
func TestAMDNamesOfANode(t *testing.T) {
	pageOf := func(profile, names string) (ours, amds []string) {
		t.Helper()
		_, cfg := wanted(t, "--field-names="+names)
		list := parseCSV(t, cfg, string(etc.DefaultCounters()))
		synctest.Test(t, func(t *testing.T) {
			factory, err := fake.Factory(fake.Options{Profile: profile, Devices: 2})
			must(t, err)
			text, _, _ := simulate(t, factory, list, func(int) {})
			for line := range strings.Lines(string(text)) {
				switch {
				case strings.HasPrefix(line, "gpu_"), strings.HasPrefix(line, "pcie_"):
					amds = append(amds, line)
				case line[0] != '#':
					ours = append(ours, line)
				}
			}
		})
		return ours, amds
	}
	ours, none := pageOf("mi300x", "as-written")
	next, amds := pageOf("mi300x", "as-written,amd")
	left, alone := pageOf("mi300x", "amd")
	if len(none) > 0 || len(amds) < 300 || len(ours) == 0 {
		t.Fatalf("%d and %d lines of AMD's names, %d of ours", len(none), len(amds), len(ours))
	}
	for what, diff := range map[string]string{
		"ours next to AMD's": cmp.Diff(ours, next), "AMD's without ours": cmp.Diff(amds, alone), "ours in AMD's place": cmp.Diff([]string(nil), left),
	} {
		if diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	if _, amds := pageOf("dgx-h100", "both,amd"); len(amds) > 0 {
		t.Errorf("GPUs of NVIDIA under AMD's names: %q", amds)
	}
}
