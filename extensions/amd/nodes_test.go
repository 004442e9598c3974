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
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/golden"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/events"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/view"
)

var must = testkit.Must

type environment = testkit.Environment

// amdNodes lists the nodes with golden pages under AMD's names.
var amdNodes = map[string]rocmtest.Options{
	"mi250x":     {Model: rocmtest.MI250X, GPUs: 2, Deferred: true},
	"mi300x":     {Model: rocmtest.MI300X, GPUs: 1, Metrics: "1.8", Deferred: true},
	"mi300x-cpx": {Model: rocmtest.MI300X, GPUs: 2, Metrics: "1.8", Deferred: true, Partition: "CPX", Memory: "NPS4"},
	"radeon":     {Model: rocmtest.RX7900, GPUs: 1},
	"apu":        {Model: rocmtest.APU, GPUs: 1},
}

// owners returns the users of a device.
type owners func(*collector.Device) []view.Owner

func (owners) Version() uint64                           { return 1 }
func (o owners) Owners(d *collector.Device) []view.Owner { return o(d) }
func (owners) Split(*collector.Device, field.ID) bool    { return false }
func (owners) Shares() *view.Shares                      { return nil }

// podOf assigns a pod to each device.
func podOf(d *collector.Device) []view.Owner {
	return []view.Owner{{
		Labels: []collector.Label{{Name: "container", Value: "main"}, {Name: "namespace", Value: "ml"}, {Name: "pod", Value: "on-" + d.Node}},
		Facts:  []collector.Label{{Name: "job_user", Value: "ada"}, {Name: "team", Value: "blue"}},
	}}
}

// amdPage renders the page of a node.
func amdPage(t *testing.T, o rocmtest.Options, names *Names, inPlace bool) []byte {
	t.Helper()
	list, _, err := field.Parse(strings.NewReader("DCGM_FI_DEV_GPU_TEMP,gauge,t\nDCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION,counter,e\n"), field.ParseOptions{Strict: true})
	must(t, err)
	if names != nil {
		list.Dialect = names.Dialect(inPlace)
	}
	tree := rocmtest.NewTree(t, o)
	c := rocm.New(rocm.Options{Root: tree.Root, Source: rocm.SourceSysfs})
	sources := testkit.Get(c.Open(t.Context(), list))(t)
	defer func() { _ = c.Close() }()
	v := &view.View{Version: 1}
	for range 2 { // rates need two samples
		v.Sources = nil
		for _, s := range sources {
			row := make([]float64, len(s.Columns()))
			must(t, s.Sample(row, slices.Repeat([]bool{true}, len(row))))
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
	r := exposition.New(board, exposition.Options{Hostname: "node-1", Owners: owners(podOf)})
	return r.Page(exposition.Text, false)
}

// healthyBut1 returns verdicts for a view: GPU 1 is unknown, all others are ok.
func healthyBut1(v *view.View) func() *events.Snapshot {
	s := &events.Snapshot{}
	for _, source := range v.Sources {
		for _, d := range source.Devices {
			if d.Level != field.GPU || d.GPU != "1" {
				s.Verdicts = append(s.Verdicts, events.Verdict{Device: d, State: events.OK})
			}
		}
	}
	return func() *events.Snapshot { return s }
}

// namesOf returns the Names of valid settings.
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
	families := testkit.Get(parser.TextToMetricFamilies(bytes.NewReader(page)))(t)
	return families
}

// TestAMDPages compares the pages under AMD's names with golden files. These omit labels that have
// the same value on all series.
func TestAMDPages(t *testing.T) {
	for name, o := range amdNodes {
		t.Run(name, func(t *testing.T) {
			amd := Settings{Labels: []string{"GPU_UUID", "CARD_SERIES", "CARD_VENDOR", "DRIVER_VERSION", "VBIOS_VERSION", "CLUSTER_NAME", "POD_UUID"},
				Custom: []Pair{{Name: "cluster_name", Value: "c1"}}, PodLabels: []Pair{{Name: "team", Value: "example.com/team"}}}
			if o.Partition != "" { // values of partitions, and some values of boards
				amd.Fields = []string{"GPU_NODES_TOTAL", "GPU_HEALTH", "GPU_GFX_ACTIVITY", "GPU_GFX_BUSY_INSTANTANEOUS", "GPU_TOTAL_VRAM", "GPU_USED_VRAM",
					"GPU_PACKAGE_POWER", "GPU_CLOCK", "GPU_ECC_CORRECT_TOTAL", "GPU_XGMI_LINK_RX", "GPU_VIOLATION_LOW_UTILIZATION_ACCUMULATED"}
			}
			page := amdPage(t, o, namesOf(t, amd), true)
			golden.Check(t, filepath.Join("testdata", "amd-"+name+".txt"), compact(t, familiesOf(t, page)))
		})
	}
}

// compact writes a page of gauges: first the labels common to all series, then each series with its other labels.
func compact(t *testing.T, families map[string]*dto.MetricFamily) string {
	t.Helper()
	values, series := map[string]map[string]bool{}, 0
	for name, f := range families {
		testkit.Equal(t, "type of "+name, dto.MetricType_GAUGE, f.GetType())
		for _, m := range f.Metric {
			if name == "gpu_nodes_total" {
				continue // differs by node
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
	for _, l := range []string{"gpu_uuid", "pod", "serial_number"} { // labels that follow gpu_id
		if of := slices.Sorted(maps.Keys(values[l])); len(of) > 1 {
			fmt.Fprintf(&b, "some %s=%q\n", l, of)
		}
	}
	return b.String()
}

// TestAMDDashboards: the 261 expressions of AMD's dashboards (grafana/ of https://github.com/ROCm/device-metrics-exporter,
// v1.5.2), except for the profiler's, find their metrics and their labels on at least one node.
func TestAMDDashboards(t *testing.T) {
	metrics := strings.Fields(`gpu_average_package_power gpu_ecc_correct_total gpu_ecc_uncorrect_total gpu_edge_temperature gpu_energy_consumed gpu_gfx_activity
		gpu_gfx_busy_instantaneous gpu_hbm_temperature gpu_health gpu_junction_temperature gpu_memory_temperature gpu_package_power gpu_total_vram gpu_used_vram
		pcie_bandwidth pcie_max_speed pcie_nack_received_count pcie_nack_sent_count pcie_recovery_count pcie_replay_count pcie_replay_rollover_count`)
	labels := strings.Fields("card_model card_series card_vendor cluster_name driver_version gpu_id gpu_partition_id gpu_uuid hostname job_id pod serial_number vbios_version")
	found := map[string]bool{}
	for node, o := range amdNodes {
		families := familiesOf(t, amdPage(t, o, namesOf(t, Settings{
			Prefix: "amd_", Labels: []string{"GPU_UUID", "CARD_SERIES", "CARD_VENDOR", "DRIVER_VERSION", "VBIOS_VERSION"},
			Custom: []Pair{{Name: "cluster_name", Value: "c1"}},
		}), false))
		for _, m := range metrics {
			for _, series := range families["amd_"+m].GetMetric() {
				found[m] = true
				for _, l := range labels {
					if !slices.ContainsFunc(series.Label, func(p *dto.LabelPair) bool { return p.GetName() == l }) {
						t.Errorf("%s: %s has no label %s", node, m, l)
					}
				}
			}
		}
	}
	testkit.Equal(t, fmt.Sprintf("metrics of %q that a node has: %v", metrics, found), len(metrics), len(found))
}
