//go:build linux && cgo

package nvml

import (
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"warpgauge/internal/testkit/captures"
	"warpgauge/pkg/field"
)

// captured makes readings of what nvidia-smi said of a board, in NVML's numbers.
func captured(t *testing.T, b captures.Board) map[field.ID]float64 {
	t.Helper()
	out := map[field.ID]float64{}
	for id, names := range map[field.ID][]string{
		155: {"xml:gpu_power_readings/average_power_draw", "xml:gpu_power_readings/power_draw", "xml:power_readings/power_draw", "csv:power.draw"},
		311: {"csv:ecc.errors.uncorrected.volatile.total", "xml:ecc_errors/volatile/dram_uncorrectable"},
		390: {"csv:retired_pages.single_bit_ecc.count"}, 391: {"csv:retired_pages.double_bit.count"}, 392: {"csv:retired_pages.pending"},
		393: {"xml:remapped_rows/remapped_row_unc", "csv:remapped_rows.uncorrectable"}, 395: {"xml:remapped_rows/remapped_row_failure", "csv:remapped_rows.failure"},
		84: {"csv:inforom.checksum_validation"}, 1507: {"xml:ecc_errors/unrepairable_memory"}, 1523: {"xml:gpu_recovery_action", "csv:gpu_recovery_action"},
	} {
		said := b.First(names...)
		if said == "" {
			continue
		}
		v, ok := map[string]float64{"No": 0, "Yes": 1, "None": 0, "valid": 1}[said]
		if !ok {
			var err error
			number, _, _ := strings.Cut(said, " ")
			if v, err = strconv.ParseFloat(number, 64); err != nil {
				t.Fatalf("%s: %q is not understood: %v", b.Name, said, err)
			}
		}
		out[id] = v
	}
	if state, ok := map[string]float64{"Completed": 3, "In Progress": 2, "Not Started": 1}[b.First("xml:fabric/state", "csv:fabric.state")]; ok {
		status := 1.0
		if b.First("xml:fabric/status", "csv:fabric.status") == "Success" {
			status = 0
		}
		out[170] = dcgmFabricStatus(state, status)
		out[174] = 0
		for shift, names := range map[int][2]string{
			0: {"xml:fabric/health/bandwidth", "csv:fabric.health.bandwidth"}, 2: {"xml:fabric/health/route_recovery_in_progress", ""},
			4: {"xml:fabric/health/route_unhealthy", "csv:fabric.health.route_unhealthy"}, 6: {"xml:fabric/health/access_timeout_recovery", ""},
			8: {"xml:fabric/health/incorrect_configuration", ""},
		} {
			bits := map[string]int{"": 0, "Full": 2, "False": 2, "None": 1, "Degraded": 1, "True": 1}
			out[174] += float64(bits[b.First(names[:]...)] << shift)
		}
	}
	return out
}

// TestCapturedBoardsAreHealthy: boards of others at work do not fail, and what they do not have is
// not judged.
func TestCapturedBoardsAreHealthy(t *testing.T) {
	inFabric := []string{"h100", "b200", "gb200", "gb300", "h200", "h200-idle", "h200-mig", "h100-csv"}
	for _, b := range captures.NVIDIA(t) {
		readings := captured(t, b)
		want := map[string]string{}
		for watch, ids := range map[string][]field.ID{
			"MEM": {311, 390, 391, 392, 393, 395, 1507}, "INFOROM": {84}, "POWER": {155}, "DRIVER": {1523}, "NVLINK": {170},
		} {
			if slices.ContainsFunc(ids, func(id field.ID) bool { _, has := readings[id]; return has }) {
				want[watch] = "pass"
			}
		}
		if (want["NVLINK"] != "") != slices.Contains(inFabric, b.Name) {
			t.Errorf("%s: in a fabric is %t (%s)", b.Name, want["NVLINK"] != "", b.Source)
		}
		p := newHealthPart(nvml.DEVICE_ARCH_UNKNOWN, newStub(readings), nil, nil)
		if diff := cmp.Diff(want, watches(t, p)); diff != "" {
			t.Errorf("%s (-want +got):\n%s%v\n%s", b.Name, diff, readings, b.Source)
		}
		p.close()
	}
}

// TestCapturedBrands: DCGM's names of brands are nvidia-smi's.
func TestCapturedBrands(t *testing.T) {
	seen := 0
	for _, b := range captures.NVIDIA(t) {
		brand := b.First("xml:product_brand")
		if brand == "" {
			continue
		}
		seen++
		if !slices.Contains(brandNames(), brand) {
			t.Errorf("%s: brand %q is not known (%s)", b.Name, brand, b.Source)
		}
	}
	if seen < 10 {
		t.Errorf("%d boards say their brand", seen)
	}
}

// TestPresetsAreBoards compares what does not change of simulated boards with nvidia-smi's word on
// such boards of others.
func TestPresetsAreBoards(t *testing.T) {
	const mebi, milli = 1 << 20, 1000
	facts := map[string]struct {
		name string
		unit float64
	}{
		"memory.total": {"fb_memory_usage/total", mebi}, "bar1.total": {"bar1_memory_usage/total", mebi},
		"power.default": {"gpu_power_readings/default_power_limit", milli}, "power.min": {"gpu_power_readings/min_power_limit", milli},
		"power.max": {"gpu_power_readings/max_power_limit", milli}, "clock.max": {"max_clocks/sm_clock", 1}, "clock.max[2]": {"max_clocks/mem_clock", 1},
		"clock.max[3]": {"max_clocks/video_clock", 1}, "pcie.gen.max": {"pci/pci_gpu_link_info/pcie_gen/max_link_gen", 1},
	}
	for preset, board := range map[string]string{"h100-sxm": "h100", "a100-sxm": "a100", "t4": "t4"} {
		text, err := os.ReadFile("nvmltest/presets/" + preset + ".nvml")
		if err != nil {
			t.Fatal(err)
		}
		all := captures.NVIDIA(t)
		b := all[slices.IndexFunc(all, func(b captures.Board) bool { return b.Name == board })]
		compared := 0
		for line := range strings.Lines(string(text)) {
			rest, ok := strings.CutPrefix(strings.TrimSpace(line), "gpu * ")
			key, value, _ := strings.Cut(rest, " ")
			fact, known := facts[key]
			if !ok || !known {
				if key == "name" && value != b.First("xml:product_name") {
					t.Errorf("%s is called %q, nvidia-smi says %q", preset, value, b.First("xml:product_name"))
				}
				continue
			}
			number, _, _ := strings.Cut(b.First("xml:"+fact.name), " ")
			want, err := strconv.ParseFloat(number, 64)
			got, e := strconv.ParseFloat(value, 64)
			if err != nil || e != nil || math.Abs(got/fact.unit-want) > 0.5 {
				t.Errorf("%s: %s is %s, nvidia-smi says %s (%s)", preset, key, value, b.First("xml:"+fact.name), b.Source)
			}
			compared++
		}
		if compared < 6 {
			t.Errorf("%s: %d facts compared", preset, compared)
		}
	}
}
