//go:build linux && cgo

package nvml

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"warpgauge/internal/testkit/captures"
	"warpgauge/pkg/field"
)

// TestCapturedBrands checks that DCGM's brand names equal nvidia-smi's.
func TestCapturedBrands(t *testing.T) {
	seen := 0
	for _, b := range captures.NVIDIA(t) {
		brand := b.First("xml:product_brand")
		if brand == "" {
			continue
		}
		seen++
		if !slices.Contains(brandNames[:], brand) {
			t.Errorf("%s: brand %q is not known (%s)", b.Name, brand, b.Source)
		}
	}
	if seen < 10 {
		t.Errorf("%d boards say their brand", seen)
	}
}

// decoded maps a field to its NVML source and to nvidia-smi's names for it. unit is nvidia-smi's unit in NVML's (mW,
// bytes, ns; nvml.h).
type decoded struct {
	id    field.ID
	names []string
	call  *call // nil for nvmlDeviceGetFieldValues
	pick  int
	arg   uint32
	unit  float64
	scale float64 // from nvidia-smi's unit to DCGM's; 0 means 1
}

func decodings() []decoded {
	const one, milli, mebi = 1, 1000, 1 << 20
	of := func(names ...string) []string { return names }
	return []decoded{
		{id: 250, names: of("xml:fb_memory_usage/total", "csv:memory.total"), call: getMemoryInfo, unit: mebi},
		{id: 251, names: of("xml:fb_memory_usage/free", "csv:memory.free"), call: getMemoryInfo, pick: 1, unit: mebi},
		{id: 252, names: of("xml:fb_memory_usage/used", "csv:memory.used"), call: getMemoryInfo, pick: 2, unit: mebi},
		{id: 253, names: of("xml:fb_memory_usage/reserved", "csv:memory.reserved"), call: getMemoryInfo, pick: 3, unit: mebi},
		{id: 90, names: of("xml:bar1_memory_usage/total"), call: getBAR1Info, unit: mebi},
		{id: 92, names: of("xml:bar1_memory_usage/used"), call: getBAR1Info, pick: 2, unit: mebi},
		{id: 93, names: of("xml:bar1_memory_usage/free"), call: getBAR1Info, pick: 1, unit: mebi},
		{id: 155, names: of("csv:power.draw", "xml:gpu_power_readings/average_power_draw", "xml:gpu_power_readings/power_draw", "xml:power_readings/power_draw"), call: getPowerUsage, unit: milli},
		{id: 157, names: of("xml:gpu_power_readings/instant_power_draw", "csv:power.draw.instant"), arg: 186, unit: milli},
		{id: 160, names: of("xml:gpu_power_readings/current_power_limit", "xml:power_readings/power_limit", "csv:power.limit"), call: getPowerLimit, unit: milli},
		{id: 163, names: of("xml:gpu_power_readings/default_power_limit", "xml:power_readings/default_power_limit", "csv:power.default_limit"), call: getPowerDefaultLimit, unit: milli},
		{id: 161, names: of("xml:gpu_power_readings/min_power_limit", "xml:power_readings/min_power_limit", "csv:power.min_limit"), call: getPowerLimitRange, unit: milli},
		{id: 162, names: of("xml:gpu_power_readings/max_power_limit", "xml:power_readings/max_power_limit", "csv:power.max_limit"), call: getPowerLimitRange, pick: 1, unit: milli},
		{id: 164, names: of("csv:enforced.power.limit", "xml:power_readings/enforced_power_limit"), call: getEnforcedPowerLimit, unit: milli},
		{id: 100, names: of("xml:clocks/sm_clock", "csv:clocks.current.sm"), call: getClockInfo, arg: clockSM, unit: one},
		{id: 101, names: of("xml:clocks/mem_clock", "csv:clocks.current.memory"), call: getClockInfo, arg: clockMemory, unit: one},
		{id: 102, names: of("xml:clocks/video_clock", "csv:clocks.current.video"), call: getClockInfo, arg: clockVideo, unit: one},
		{id: 113, names: of("xml:max_clocks/sm_clock", "csv:clocks.max.sm"), call: getMaxClockInfo, arg: clockSM, unit: one},
		{id: 114, names: of("xml:max_clocks/mem_clock", "csv:clocks.max.memory"), call: getMaxClockInfo, arg: clockMemory, unit: one},
		{id: 150, names: of("xml:temperature/gpu_temp", "csv:temperature.gpu"), call: getTemperature, unit: one},
		{id: 140, names: of("xml:temperature/memory_temp", "csv:temperature.memory"), arg: 82, unit: one},
		{id: 203, names: of("xml:utilization/gpu_util", "csv:utilization.gpu"), call: getUtilization, unit: one},
		{id: 204, names: of("xml:utilization/memory_util", "csv:utilization.memory"), call: getUtilization, pick: 1, unit: one},
		{id: 191, names: of("xml:fan_speed", "csv:fan.speed"), call: getFanSpeed, unit: one},
		{id: 202, names: of("xml:pci/replay_counter"), call: getPCIeReplay, unit: one},
		{id: 311, names: of("csv:ecc.errors.uncorrected.volatile.total", "xml:ecc_errors/volatile/dram_uncorrectable"), arg: 4, unit: one},
		{id: 390, names: of("csv:retired_pages.single_bit_ecc.count"), call: getRetiredPages, arg: singleBitPages, unit: one},
		{id: 391, names: of("csv:retired_pages.double_bit.count"), arg: 30, unit: one},
		{id: 392, names: of("csv:retired_pages.pending"), arg: 31, unit: one},
		{id: 395, names: of("xml:remapped_rows/remapped_row_failure", "csv:remapped_rows.failure"), arg: 145, unit: one},
		{id: 84, names: of("csv:inforom.checksum_validation"), call: getInforomValid, unit: one},
		{id: 1507, names: of("xml:ecc_errors/unrepairable_memory"), call: getUnrepairableMemory, unit: one},
		{id: 1523, names: of("xml:gpu_recovery_action", "csv:gpu_recovery_action"), arg: 230, unit: one},
		{id: 393, names: of("xml:remapped_rows/remapped_row_unc", "csv:remapped_rows.uncorrectable"), arg: 143, unit: one},
		{id: 394, names: of("xml:remapped_rows/remapped_row_corr", "csv:remapped_rows.correctable"), arg: 142, unit: one},
		{id: 310, names: of("csv:ecc.errors.corrected.volatile.total"), arg: 3, unit: one},
		{id: 240, names: of("csv:clocks_event_reasons_counters.sw_power_cap", "xml:clocks_event_reasons_counters/clocks_event_reasons_counters_sw_power_cap"), arg: 74, unit: milli, scale: milli},
	}
}

// capturedDevice returns a fake device with a captured board's values in NVML's units, and the readings that
// nvidia-smi showed. A field that the board lacks is not in want.
func capturedDevice(b captures.Board) (d *fakeDevice, want map[field.ID]float64) {
	d, want = &fakeDevice{results: map[*call]func([3]uint32) ([]float64, nvml.Return){}, fields: map[uint32]float64{}}, map[field.ID]float64{}
	answers := map[*call]map[uint32]map[int]float64{}
	answer := func(c *call, arg uint32, pick int, v float64) {
		if answers[c] == nil {
			answers[c] = map[uint32]map[int]float64{}
		}
		if answers[c][arg] == nil {
			answers[c][arg] = map[int]float64{}
		}
		answers[c][arg][pick] = v
	}
	for _, r := range decodings() {
		said := b.First(r.names...)
		v, ok := map[string]float64{"No": 0, "Yes": 1, "None": 0, "valid": 1}[said]
		if !ok {
			var err error
			number, _, _ := strings.Cut(said, " ")
			if v, err = strconv.ParseFloat(number, 64); err != nil {
				continue
			}
		}
		if r.call == nil {
			d.fields[r.arg] = math.Round(v * r.unit)
		} else {
			answer(r.call, r.arg, r.pick, math.Round(v*r.unit))
		}
		if v != 0 || byField()[r.id][0].how != unlessZero { // a vGPU has no maximum clock
			want[r.id] = v * max(r.scale, 1)
		}
	}
	if state, ok := map[string]float64{"Completed": 3, "In Progress": 2, "Not Started": 1}[b.First("xml:fabric/state", "csv:fabric.state")]; ok {
		status, mask := 1.0, 0
		if b.First("xml:fabric/status", "csv:fabric.status") == "Success" {
			status = 0
		}
		for shift, names := range map[int][2]string{
			0: {"xml:fabric/health/bandwidth", "csv:fabric.health.bandwidth"}, 2: {"xml:fabric/health/route_recovery_in_progress", ""},
			4: {"xml:fabric/health/route_unhealthy", "csv:fabric.health.route_unhealthy"}, 6: {"xml:fabric/health/access_timeout_recovery", ""},
			8: {"xml:fabric/health/incorrect_configuration", ""},
		} {
			mask += map[string]int{"": 0, "Full": 2, "False": 2, "None": 1, "Degraded": 1, "True": 1}[b.First(names[:]...)] << shift
		}
		for pick, v := range []float64{state, status, 0, float64(mask)} {
			answer(getFabricInfo, 0, pick, v)
		}
	}
	for c, byArg := range answers {
		d.results[c] = func(arg [3]uint32) ([]float64, nvml.Return) {
			byPick, ok := byArg[arg[0]]
			if !ok {
				return nil, nvml.ERROR_NOT_SUPPORTED
			}
			out := slices.Repeat([]float64{math.NaN()}, (*c)[0].results)
			for pick, v := range byPick {
				out[pick] = v
			}
			return out, nvml.SUCCESS
		}
	}
	return d, want
}

// TestCapturedBoards checks that readings equal nvidia-smi's, that working boards pass, and that watches without
// readings have no result.
func TestCapturedBoards(t *testing.T) {
	inFabric := []string{"h100", "b200", "gb200", "gb300", "h200", "h200-idle", "h200-mig", "h100-csv"}
	fields := map[field.ID]bool{}
	var ids []field.ID
	for _, r := range decodings() {
		ids = append(ids, r.id)
	}
	for _, b := range captures.NVIDIA(t) {
		d, want := capturedDevice(b)
		p := bind(t, d, ids...)
		row, err := sampleAllOf(p)
		must(t, err)
		got := map[field.ID]float64{}
		for i, c := range p.columns() {
			if !math.IsNaN(row[i]) {
				got[c.Field] = row[i]
				fields[c.Field] = true
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s, %s (-nvidia-smi +ours):\n%s", b.Name, b.Source, diff)
		}
		watching := map[string]string{}
		for watch, ids := range map[string][]field.ID{"MEM": {311, 390, 391, 392, 393, 395, 1507}, "INFOROM": {84}, "POWER": {155, 240}, "DRIVER": {1523}} {
			if slices.ContainsFunc(ids, func(id field.ID) bool { _, has := want[id]; return has }) {
				watching[watch] = "pass"
			}
		}
		if slices.Contains(inFabric, b.Name) {
			watching["NVLINK"] = "pass"
		}
		if replays, counted := want[202]; counted && replays == 0 { // the first sample passes only a count of 0
			watching["PCIE"] = "pass"
		}
		inputs, err := newReadings(d, []target{{reader: d, level: field.GPU}}, healthInputs(), nil, unexplained(), nil)
		must(t, err)
		h := newHealthPart(inputs, nil, nil, nil)
		equal(t, watching, watches(t, h), "%s, %s: watches", b.Name, b.Source)
		h.close()
	}
	if len(fields) < 25 {
		t.Errorf("%d fields were decoded", len(fields))
	}
}
