package amd

import (
	"bytes"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"warpgauge/collectors/rocm"
	"warpgauge/collectors/rocm/rocmtest"
	"warpgauge/internal/testkit/golden"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/verdict"
	"warpgauge/pkg/view"
)

// amdNodes are the nodes whose pages under AMD's names are kept.
var amdNodes = map[string]rocmtest.Options{
	"mi250x":     {Model: rocmtest.MI250X, GPUs: 2, Deferred: true},
	"mi300x":     {Model: rocmtest.MI300X, GPUs: 1, Metrics: "1.8", Deferred: true},
	"mi300x-cpx": {Model: rocmtest.MI300X, GPUs: 2, Metrics: "1.8", Deferred: true, Partition: "CPX", Memory: "NPS4"},
	"radeon":     {Model: rocmtest.RX7900, GPUs: 1},
	"apu":        {Model: rocmtest.APU, GPUs: 1},
}

// podOf gives each device that can have one a pod.
type podOf struct{}

func (podOf) Version() uint64 { return 1 }
func (podOf) Owners(d *collector.Device) []exposition.Owner {
	return []exposition.Owner{{
		Labels: []collector.Label{{Name: "container", Value: "main"}, {Name: "namespace", Value: "ml"}, {Name: "pod", Value: "on-" + d.Node}},
		Facts:  []collector.Label{{Name: "job_user", Value: "ada"}, {Name: "team", Value: "blue"}},
	}}
}
func (podOf) Split(*collector.Device, field.ID) bool { return false }
func (podOf) Shares() *exposition.Shares             { return nil }

// amdPage is the page of a node.
func amdPage(t *testing.T, o rocmtest.Options, names *Names, inPlace bool) []byte {
	t.Helper()
	list, _, err := field.Parse(strings.NewReader("DCGM_FI_DEV_GPU_TEMP,gauge,t\nDCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION,counter,e\n"), field.ParseOptions{Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	if names != nil {
		list.Dialect = names.Dialect(inPlace)
	}
	tree := rocmtest.NewTree(t, o)
	c := rocm.New(rocm.Options{Root: tree.Root, Source: rocm.SourceSysfs})
	sources, err := c.Open(t.Context(), list)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	v := &view.View{Version: 1}
	for range 2 { // rates take two
		v.Sources = nil
		for _, s := range sources {
			row := make([]float64, len(s.Columns()))
			if err := s.Sample(row, slices.Repeat([]bool{true}, len(row))); err != nil {
				t.Fatal(err)
			}
			out := &view.Source{Collector: "rocm", Fields: list, Devices: s.Devices(), Columns: s.Columns(), Ring: ring.Make(2, len(s.Devices()), len(row))}
			out.Ring.Append(time.Now().UnixNano(), slices.Repeat([]int64{time.Now().UnixNano()}, len(s.Devices())), row)
			v.Sources = append(v.Sources, out)
		}
		tree.Step(t, time.Second)
	}
	if names != nil {
		names.verdicts = healthyBut1(v)
	}
	board := &view.Board{}
	board.Store(v)
	r := exposition.New(board, exposition.Options{Hostname: "node-1", Owners: podOf{}})
	return r.Page(exposition.Text, false)
}

// healthyBut1 has good verdicts on all devices of a view, except GPU 1, of which nothing is known.
func healthyBut1(v *view.View) func() *verdict.Snapshot {
	s := &verdict.Snapshot{}
	for _, source := range v.Sources {
		for _, d := range source.Devices {
			if d.Level != field.GPU || d.GPU != "1" {
				s.Verdicts = append(s.Verdicts, verdict.Verdict{Device: d, State: verdict.OK})
			}
		}
	}
	return func() *verdict.Snapshot { return s }
}

// namesOf returns the names of settings that can all be served.
func namesOf(t testing.TB, s Settings) *Names {
	t.Helper()
	n, why := NewNames(s, nil)
	if len(why) > 0 {
		t.Fatal(why)
	}
	return n
}

func familiesOf(t *testing.T, page []byte) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// TestAMDPages: what each kind of node shows under AMD's names. The pages are kept without the
// labels that all series have with one value.
func TestAMDPages(t *testing.T) {
	for name, o := range amdNodes {
		t.Run(name, func(t *testing.T) {
			amd := Settings{Labels: []string{"GPU_UUID", "CARD_SERIES", "CARD_VENDOR", "DRIVER_VERSION", "VBIOS_VERSION", "CLUSTER_NAME", "POD_UUID"},
				Custom: []Pair{{Name: "cluster_name", Value: "c1"}}, PodLabels: []Pair{{Name: "team", Value: "example.com/team"}}}
			if o.Partition != "" { // what partitions have of their own, and some of what only boards have
				amd.Fields = []string{"GPU_NODES_TOTAL", "GPU_HEALTH", "GPU_GFX_ACTIVITY", "GPU_GFX_BUSY_INSTANTANEOUS", "GPU_TOTAL_VRAM", "GPU_USED_VRAM",
					"GPU_PACKAGE_POWER", "GPU_CLOCK", "GPU_ECC_CORRECT_TOTAL", "GPU_XGMI_LINK_RX", "GPU_VIOLATION_LOW_UTILIZATION_ACCUMULATED"}
			}
			page := amdPage(t, o, namesOf(t, amd), true)
			golden.Check(t, filepath.Join("testdata", "amd-"+name+".txt"), compact(t, familiesOf(t, page)))
		})
	}
}

// compact writes a page of gauges: first the labels that all series have, then each series
// with those that differ.
func compact(t *testing.T, families map[string]*dto.MetricFamily) string {
	t.Helper()
	values, series := map[string]map[string]bool{}, 0
	for name, f := range families {
		if f.GetType() != dto.MetricType_GAUGE {
			t.Errorf("%s is a %v, AMD's metrics are gauges", name, f.GetType())
		}
		for _, m := range f.Metric {
			if name == "gpu_nodes_total" {
				continue // of the node
			}
			series++
			for _, l := range m.Label {
				if values[l.GetName()] == nil {
					values[l.GetName()] = map[string]bool{}
				}
				values[l.GetName()][l.GetValue()] = true
			}
			for _, l := range []string{"pod", "namespace", "container", "job_id", "job_user", "job_partition", "hostname", "serial_number", "card_model"} {
				if !slices.ContainsFunc(m.Label, func(p *dto.LabelPair) bool { return p.GetName() == l }) {
					t.Errorf("%s has no label %s", name, l)
				}
			}
		}
	}
	var b strings.Builder
	for _, l := range slices.Sorted(maps.Keys(values)) {
		if of := slices.Sorted(maps.Keys(values[l])); len(of) == 1 {
			fmt.Fprintf(&b, "all %s=%q\n", l, of[0])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(families)) {
		for _, m := range families[name].Metric {
			var labels []string
			for _, l := range m.Label {
				if n := l.GetName(); len(values[n]) != 1 && n != "pod" && n != "gpu_uuid" && n != "serial_number" || name == "gpu_nodes_total" {
					labels = append(labels, fmt.Sprintf("%s=%q", n, l.GetValue()))
				}
			}
			fmt.Fprintf(&b, "%s{%s} %v\n", name, strings.Join(labels, ","), m.Gauge.GetValue())
		}
	}
	for _, l := range []string{"gpu_uuid", "pod", "serial_number"} { // those that go with gpu_id
		if of := slices.Sorted(maps.Keys(values[l])); len(of) > 1 {
			fmt.Fprintf(&b, "some %s=%q\n", l, of)
		}
	}
	return b.String()
}

// TestBothDialects: ours are the same with AMD's names next to them.
func TestBothDialects(t *testing.T) {
	for name, o := range amdNodes {
		ours := familiesOf(t, amdPage(t, o, nil, false))
		both := familiesOf(t, amdPage(t, o, namesOf(t, Settings{}), false))
		only := familiesOf(t, amdPage(t, o, namesOf(t, Settings{}), true))
		for n, f := range ours {
			if fmt.Sprint(both[n]) != fmt.Sprint(f) {
				t.Errorf("%s: %s:\n%v\nnext to AMD's names:\n%v", name, n, f, both[n])
			}
			if only[n] != nil {
				t.Errorf("%s: %s is there though AMD's names are in its place", name, n)
			}
		}
		if len(both) != len(ours)+len(only) || len(only) < 20 {
			t.Errorf("%s: %d families, %d and %d", name, len(both), len(ours), len(only))
		}
	}
}

// dashboardLabels are those by which AMD's dashboards select and group GPUs, apart from
// xcc_index and hbm_index (grafana/ of https://github.com/ROCm/device-metrics-exporter, v1.5.2).
var dashboardLabels = []string{"card_model", "card_series", "card_vendor", "cluster_name", "driver_version", "gpu_id", "gpu_partition_id", "gpu_uuid", "hostname", "job_id", "pod", "serial_number", "vbios_version"}

// dashboardMetrics are all metrics of their 261 expressions: which nodes have them, and why the
// others do not.
var dashboardMetrics = []struct{ name, filled, reason string }{
	{"gpu_average_package_power", "mi250x radeon", "MI300 has the present power only, gpu_package_power"},
	{"gpu_ecc_correct_total", "mi250x mi300x mi300x-cpx", "Radeons have no RAS"},
	{"gpu_ecc_uncorrect_total", "mi250x mi300x mi300x-cpx", "Radeons have no RAS"},
	{"gpu_edge_temperature", "mi250x radeon", "MI300 has no edge sensor"},
	{"gpu_energy_consumed", "mi250x mi300x mi300x-cpx", "no source names the unit of a Radeon's counter"},
	{"gpu_gfx_activity", "mi250x mi300x mi300x-cpx radeon", ""},
	{"gpu_gfx_busy_instantaneous", "mi300x mi300x-cpx", "gpu_metrics has it from revision 1.6 on, MI300 and later; the dashboards ask MI200 for gpu_gfx_activity, but not Radeons"},
	{"gpu_hbm_temperature", "mi250x", "the firmware of MI300 does not report it, Radeons have no HBM"},
	{"gpu_health", "mi250x mi300x mi300x-cpx radeon", ""},
	{"gpu_junction_temperature", "mi250x mi300x mi300x-cpx radeon", ""},
	{"gpu_memory_temperature", "mi250x mi300x mi300x-cpx radeon", ""},
	{"gpu_nodes_total", "mi250x mi300x mi300x-cpx radeon", ""},
	{"gpu_package_power", "mi300x mi300x-cpx", "the board has the average only, gpu_average_package_power"},
	{"gpu_prof_gui_util_percent", "", "profiler"},
	{"gpu_prof_occupancy_per_active_cu", "", "profiler"},
	{"gpu_prof_occupancy_per_cu", "", "profiler"},
	{"gpu_prof_simd_utilization", "", "profiler"},
	{"gpu_prof_sm_active", "", "profiler"},
	{"gpu_prof_tensor_active_percent", "", "profiler"},
	{"gpu_total_vram", "mi250x mi300x mi300x-cpx radeon", ""},
	{"gpu_used_vram", "mi250x mi300x mi300x-cpx radeon", ""},
	{"pcie_bandwidth", "mi300x mi300x-cpx", "gpu_metrics has it from MI300 on"},
	{"pcie_max_speed", "mi250x mi300x mi300x-cpx radeon", ""},
	{"pcie_nack_received_count", "mi300x mi300x-cpx", "gpu_metrics has it from MI300 on"},
	{"pcie_nack_sent_count", "mi300x mi300x-cpx", "gpu_metrics has it from MI300 on"},
	{"pcie_recovery_count", "mi300x mi300x-cpx", "gpu_metrics has it from MI300 on"},
	{"pcie_replay_count", "mi250x mi300x mi300x-cpx radeon", ""},
	{"pcie_replay_rollover_count", "mi300x mi300x-cpx", "gpu_metrics has it from MI300 on"},
}

func TestAMDDashboards(t *testing.T) {
	for node, o := range amdNodes {
		if node == "apu" {
			continue
		}
		families := familiesOf(t, amdPage(t, o, namesOf(t, Settings{
			Prefix: "amd_", Labels: []string{"GPU_UUID", "CARD_SERIES", "CARD_VENDOR", "DRIVER_VERSION", "VBIOS_VERSION"},
			Custom: []Pair{{Name: "cluster_name", Value: "c1"}},
		}), false))
		for _, m := range dashboardMetrics {
			f := families["amd_"+m.name]
			if filled := slices.Contains(strings.Fields(m.filled), node); filled != (f != nil) || !filled && m.reason == "" {
				t.Errorf("%s has %d series of %s; filled on %q, else because %q", node, len(f.GetMetric()), m.name, m.filled, m.reason)
			}
			want := dashboardLabels
			if m.name == "gpu_nodes_total" {
				want = []string{"cluster_name", "hostname"}
			}
			for _, series := range f.GetMetric() {
				for _, l := range want {
					if !slices.ContainsFunc(series.Label, func(p *dto.LabelPair) bool { return p.GetName() == l }) {
						t.Errorf("%s: %s has no label %s", node, m.name, l)
					}
				}
			}
		}
	}
}
