package rocm

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	gm "warpgauge/collectors/rocm/internal/gpumetrics"
	"warpgauge/collectors/rocm/internal/sysfs"
	"warpgauge/internal/testkit/golden"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

//go:generate go test -run ^TestMarkdownIsCurrent$ . -args -update

// TestMarkdownIsCurrent checks the tables of docs/rocm.md against the collector's. -update rewrites the page.
func TestMarkdownIsCurrent(t *testing.T) {
	for line := range strings.Lines(golden.Fill(t, "../../docs/rocm.md", tables())) {
		if strings.Contains(line, "``") || strings.Contains(line, "gpu_metrics: `") || strings.Contains(line, "gpu_metrics: []") {
			t.Errorf("a source without a name: %s", line)
		}
	}
}

// TestSupplies checks that every reading of a column has a file, and every field a source.
func TestSupplies(t *testing.T) {
	var units []unit
	for _, specs := range everySpec() {
		units = append(units, unit{specs: specs})
	}
	all := readings(units)
	if len(all) < 100 {
		t.Fatalf("only %d readings", len(all))
	}
	for _, r := range all {
		if r.File() == "" {
			t.Errorf("reading %+v has no file", r)
		}
	}
	from := map[field.ID][]string{}
	for _, specs := range everySpec() {
		for _, s := range specs {
			from[s.field] = s.files()
		}
	}
	for id := range known() {
		if d, ok := field.ByID(id); !ok || !Supplies(d) {
			t.Errorf("field %d is not in the catalogue", id)
		}
	}
	if xid, _ := field.ByID(field.XIDErrors); Supplies(xid) {
		t.Error("AMD GPUs supply XIDs")
	}
	for id, want := range map[field.ID][]string{
		dcgmCount: nil, dcgmGPUUtil: {"gpu_busy_percent", "gpu_metrics"}, dcgmPCIeTx: {"pcie_bw"},
		dcgmMemoryTemp: {"gpu_metrics", "hwmon temp*_input (label mem)"}, dcgmLink: {"gpu_metrics"},
	} {
		if !slices.Equal(from[id], want) {
			t.Errorf("field %d from %q, want %q", id, from[id], want)
		}
	}
}

// tables returns the tables of the page, by the name of their section.
func tables() map[string]string {
	specs, out := everySpec(), map[string]string{}
	for i, name := range []string{"gpu", "partition", "link"} {
		var b strings.Builder
		writeSpecs(&b, specs[i])
		out[name] = b.String()
	}
	var b strings.Builder
	b.WriteString("| Field | File |\n|---|---|\n")
	files := textFiles()
	for _, id := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&b, "| `%s` | %s |\n", nameOf(id), files[id])
	}
	out["texts"] = b.String()
	return out
}

// row describes the columns of one field.
type row struct {
	id      field.ID
	labels  []string // names
	values  []string // of the columns, as name=value
	sources string
}

func writeSpecs(b *strings.Builder, specs []spec) {
	var rows []row
	for _, s := range specs {
		r := row{id: s.field, sources: sourcesOf(&s)}
		for _, l := range s.labels {
			r.labels = append(r.labels, l.Name)
		}
		r.values = []string{valuesOf(s.labels)}
		at := slices.IndexFunc(rows, func(o row) bool { return o.id == r.id && o.sources == r.sources })
		if at < 0 {
			rows = append(rows, r)
			continue
		}
		rows[at].values = append(rows[at].values, r.values...)
	}
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.id, b.id) })
	b.WriteString("| Field | Unit | Labels | From | Function of ROCm SMI |\n|---|---|---|---|---|\n")
	for _, r := range rows {
		d, _ := field.ByID(r.id)
		from, function, _ := strings.Cut(r.sources, "\x00")
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", d.Name, d.Unit, r.text(), from, function)
	}
}

func (r *row) text() string {
	if len(r.labels) == 0 {
		return ""
	}
	shown := slices.Compact(r.values)
	if len(shown) > 4 {
		shown = []string{shown[0], "…", shown[len(shown)-1]}
	}
	return "`" + strings.Join(shown, "` `") + "`"
}

func valuesOf(labels []collector.Label) string {
	var parts []string
	for _, l := range labels {
		parts = append(parts, l.Name+"="+l.Value)
	}
	return strings.Join(parts, ",")
}

// sourcesOf returns the terms, a zero byte and the library's functions.
func sourcesOf(s *spec) string {
	var from, functions []string
	group := 0
	for i := range s.terms {
		t := &s.terms[i]
		text := t.text()
		if t.group != group {
			text, group = "*else* "+text, t.group
		}
		from = append(from, text)
		for _, r := range t.raw {
			if q, ok := smiAskFor(r); ok {
				functions = append(functions, "`"+smiFunctions[q.function].Name+"`")
			}
		}
	}
	slices.Sort(functions)
	return strings.Join(from, "; ") + "\x00" + strings.Join(slices.Compact(functions), ", ")
}

// text describes a term's sources and its operation.
func (t *term) text() string {
	var in []string
	for _, r := range t.raw {
		in = append(in, "`"+fileOf(r)+"`")
	}
	in = slices.Compact(in)
	names := memberNames()
	for _, f := range t.metric {
		in = append(in, "`gpu_metrics: "+names[f]+array(f)+"`")
	}
	all := strings.Join(in, ", ")
	out := map[op]string{
		opRaw: all, opMetric: all, opCount: all, opSum: "sum of " + all, opFree: strings.Join(in, " − "), opShare: strings.Join(in, " / "), opAny: all + " > 0",
		opMax: "largest of " + all, opRate: "growth of " + all + " per second", opMeanRate: "mean growth of " + all + " per second",
		opMask: all + ", bits " + fmt.Sprintf("%#x", t.mask), opMoved: "whether " + all + " grew", opReasons: all + ", as NVIDIA's bits",
		opMovedReasons: "which grew of " + all + ", as NVIDIA's bits", opPart: "growth of the second as a share of that of the first: " + all, opHeld: "largest share of the later in the first, × time: " + all,
		opAdded: addedFrom(t.first), opAge: "time since the newest of `amdsmi_get_gpu_cper_entries`", opBus: "`pcie_bw`: packets × largest payload", opFixed: "known at start",
		opUnread: []string{"whether the revision of `gpu_metrics` is not known", "attributes of `gpu_metrics`", "nodes of KFD"}[min(t.first, 2)],
	}[t.op]
	switch {
	case t.op == opFixed:
		return out
	case t.speed:
		out += ", as a generation"
	case t.scale != 1:
		out += " × " + strconv.FormatFloat(t.scale, 'g', 6, 64)
	}
	if t.nonzero {
		out += " (0 is blank)"
	}
	if len(t.confirm) > 0 {
		out += "; bits 34 to 36 near the limit only"
	}
	return out
}

// addedFrom returns the function of AMD SMI that supplies a value of its row.
func addedFrom(i int) string {
	switch {
	case i >= addedMemory:
		return "`amdsmi_get_gpu_vram_info`"
	case i >= addedViolation:
		return "`amdsmi_get_violation_status`"
	case i >= addedAFID:
		return "`amdsmi_get_afids_from_cper`"
	}
	return "`amdsmi_get_gpu_cper_entries`"
}

func array(f gm.Field) string {
	if f.Len() > 1 {
		return "[]"
	}
	return ""
}

func nameOf(id field.ID) string {
	d, _ := field.ByID(id)
	return d.Name
}

// memberNames returns the names of gpu_metrics' members in the kernel's header.
func memberNames() map[gm.Field]string {
	return map[gm.Field]string{
		gm.TemperatureEdge: "temperature_edge", gm.TemperatureHotspot: "temperature_hotspot", gm.TemperatureMem: "temperature_mem",
		gm.TemperatureVRGfx: "temperature_vrgfx", gm.TemperatureVRSoc: "temperature_vrsoc", gm.TemperatureVRMem: "temperature_vrmem",
		gm.TemperatureHBM: "temperature_hbm", gm.TemperatureGfx: "temperature_gfx", gm.TemperatureSoc: "temperature_soc",
		gm.AverageGfxActivity: "average_gfx_activity", gm.AverageUmcActivity: "average_umc_activity", gm.AverageMMActivity: "average_mm_activity",
		gm.VCNActivity: "vcn_activity", gm.JPEGActivity: "jpeg_activity",
		gm.AverageSocketPower: "average_socket_power", gm.CurrentSocketPower: "curr_socket_power", gm.EnergyAccumulator: "energy_accumulator", gm.EnergyByASIC: "energy_accumulator",
		gm.GfxActivityAcc: "gfx_activity_acc", gm.MemActivityAcc: "mem_activity_acc",
		gm.CurrentGfxclk: "current_gfxclk", gm.CurrentSocclk: "current_socclk", gm.CurrentUclk: "current_uclk", gm.CurrentFclk: "current_fclk",
		gm.CurrentVclk0: "current_vclk0", gm.CurrentDclk0: "current_dclk0", gm.IndepThrottleStatus: "indep_throttle_status",
		gm.FanSpeed: "current_fan_speed", gm.VoltageSoc: "voltage_soc", gm.VoltageGfx: "voltage_gfx", gm.VoltageMem: "voltage_mem",
		gm.PCIeLinkWidth: "pcie_link_width", gm.PCIeLinkSpeed: "pcie_link_speed", gm.XGMILinkWidth: "xgmi_link_width", gm.XGMILinkSpeed: "xgmi_link_speed",
		gm.PCIeBandwidthInst: "pcie_bandwidth_inst", gm.PCIeL0ToRecovery: "pcie_l0_to_recov_count_acc", gm.PCIeReplay: "pcie_replay_count_acc",
		gm.PCIeReplayRover: "pcie_replay_rover_count_acc", gm.PCIeNAKSent: "pcie_nak_sent_count_acc", gm.PCIeNAKReceived: "pcie_nak_rcvd_count_acc",
		gm.XGMIReadAcc: "xgmi_read_data_acc", gm.XGMIWriteAcc: "xgmi_write_data_acc", gm.XGMILinkStatus: "xgmi_link_status",
		gm.MemMaxBandwidth: "mem_max_bandwidth", gm.AccumulationCounter: "accumulation_counter", gm.ProchotResidency: "prochot_residency_acc", gm.PPTResidency: "ppt_residency_acc",
		gm.SocketThmResidency: "socket_thm_residency_acc", gm.VRThmResidency: "vr_thm_residency_acc", gm.HBMThmResidency: "hbm_thm_residency_acc",
		gm.XCPGfxBusy: "xcp_stats.gfx_busy_inst", gm.XCPJPEGBusy: "xcp_stats.jpeg_busy", gm.XCPVCNBusy: "xcp_stats.vcn_busy",
		gm.XCPGfxBusyAcc: "xcp_stats.gfx_busy_acc", gm.XCPBelowHostLimit: "xcp_stats.gfx_below_host_limit_acc",
		gm.XCPBelowLimitPPT: "xcp_stats.gfx_below_host_limit_ppt_acc", gm.XCPBelowLimitThm: "xcp_stats.gfx_below_host_limit_thm_acc",
		gm.XCPLowUtilization: "xcp_stats.gfx_low_utilization_acc", gm.XCPBelowLimitTotal: "xcp_stats.gfx_below_host_limit_total_acc",
	}
}

// fileOf describes the file and the part of it that a reading uses.
func fileOf(r sysfs.Reading) string {
	switch r.Kind {
	case sysfs.Clock:
		return r.File() + ", line with *"
	case sysfs.ClockMax:
		return r.File() + ", highest line"
	case sysfs.ClockMin:
		return r.File() + ", lowest line"
	case sysfs.Correctable:
		return r.File() + ", ce"
	case sysfs.Uncorrectable:
		return r.File() + ", ue"
	case sysfs.Deferred:
		return r.File() + ", de"
	case sysfs.BadPages:
		return r.File() + ", " + [...]string{"R", "P", "F"}[r.Index]
	case sysfs.Processes:
		return r.File() + ": those with vram_ID or queues"
	case sysfs.ProcessMemory, sysfs.ProcessUnits:
		return r.File() + ", sum"
	default:
		return r.File()
	}
}
