package amd

import (
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/golden"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/events"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/field"
	"warpgauge/pkg/view"
	"warpgauge/pkg/view/viewtest"
)

// pageClock advances by one second per reading, so that each page renders the newest rows.
type pageClock struct{ time.Time }

func (c *pageClock) now() time.Time {
	c.Time = c.Add(time.Second)
	return c.Time
}

func pageOf(t testing.TB, board *view.Board, o exposition.Options, f exposition.Format) string {
	t.Helper()
	return string(exposition.New(board, o).Page(f, false))
}

// leftOut returns what the page's layout had to drop.
func leftOut(t testing.TB, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	all := testkit.Get(reg.Gather())(t)
	out := map[string]float64{}
	for _, f := range all {
		if f.GetName() == "warpgauge_exposition_left_out" {
			for _, m := range f.Metric {
				if v := m.Gauge.GetValue(); v > 0 {
					out[m.Label[0].GetValue()] = v
				}
			}
		}
	}
	return out
}

// amdList is a counter and a gauge of ours, with AMD's names next to them.
func amdList(t testing.TB, csv string, n *Names, inPlace bool) field.List {
	t.Helper()
	list, problems, err := field.Parse(strings.NewReader(csv), field.ParseOptions{Strict: true})
	if err != nil {
		t.Fatal(problems, err)
	}
	list.Dialect = n.Dialect(inPlace)
	return list
}

func amdGPU(i int) collector.Device {
	d := gpu(i)
	d.Texts = collector.DialectTexts(field.List{Dialect: &field.Dialect{Texts: []field.ID{field.AMDModelNumber, idSerial}}},
		map[field.ID]string{field.AMDModelNumber: "102-G30211-00", idSerial: fmt.Sprint("S", i)})
	return d
}

func gpu(i int) collector.Device {
	id := fmt.Sprintf("GPU-%08x-2222-3333-4444-555555555555", i)
	return collector.Device{
		ID: id, Level: field.GPU, GPU: fmt.Sprint(i), UUID: id, PCIBusID: fmt.Sprintf("00000000:%02X:00.0", i),
		Node: fmt.Sprintf("nvidia%d", i), Model: "NVIDIA H100 80GB HBM3",
	}
}

const amdCounters = "DCGM_FI_DEV_GPU_UTIL, gauge, Use.\nDCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, counter, Energy.\n"

var amdFields = []string{"GPU_GFX_ACTIVITY", "GPU_ENERGY_CONSUMED", "GPU_ECC_CORRECT_GFX", "GPU_NODES_TOTAL", "GPU_HEALTH"}

// amdFeed returns a feed of two AMD GPUs and one of another vendor.
func amdFeed(list field.List) *viewtest.Feed {
	ras := func(block string) []collector.Label {
		return []collector.Label{{Name: "block", Value: block}, {Name: "severity", Value: "ce"}}
	}
	f := viewtest.Simple(list, []collector.Device{amdGPU(0), amdGPU(1), gpu(2)}, []collector.Column{
		{Device: 0, Field: 203}, {Device: 0, Field: 156}, {Device: 0, Field: field.AMDRASErrors, Labels: ras("gfx")}, {Device: 0, Field: field.AMDRASErrors, Labels: ras("umc")},
		{Device: 1, Field: 203}, {Device: 1, Field: 156}, {Device: 2, Field: 203}, {Device: 2, Field: 156},
	})
	copy(f.Row, []float64{70, 5_000_001, 3, 4, 50, math.NaN(), 10, 9})
	return f
}

// TestFormats: both dialects on one page, in each format. AMD's metrics are all gauges, even counters.
func TestFormats(t *testing.T) {
	f := amdFeed(field.List{})
	verdicts := &events.Snapshot{Verdicts: []events.Verdict{{Device: f.Devices[0], State: events.Failed, Action: events.ActionReset}, {Device: f.Devices[1], State: events.Unknown}}}
	names, _ := NewNames(Settings{Fields: amdFields}, func() *events.Snapshot { return verdicts })
	f.Fields = amdList(t, amdCounters, names, false)
	f.Tick(time.Now())
	reg := prometheus.NewRegistry()
	r := exposition.New(viewtest.Board(1, f), exposition.Options{Hostname: "node-1", HostnameLabel: "Hostname", Registerer: reg})
	page := func(f exposition.Format) string { return string(r.Page(f, false)) }
	golden.Check(t, filepath.Join("testdata", "amd.prom"), page(exposition.Text))
	golden.Check(t, filepath.Join("testdata", "amd.openmetrics"), page(exposition.OpenMetrics))
	golden.Check(t, filepath.Join("testdata", "amd.protobuf.txt"), golden.Protobuf(t, page(exposition.Protobuf)))
	testkit.Equal(t, "what was left out", map[string]float64{}, leftOut(t, reg))
	verdicts = &events.Snapshot{Verdicts: []events.Verdict{{Device: f.Devices[0], State: events.OK}, {Device: f.Devices[1], State: events.Degraded, Action: events.ActionNone}}}
	f.Tick(time.Now())
	if got := pageOf(t, viewtest.Board(1, f), exposition.Options{}, exposition.Text); strings.Count(got, "gpu_health{") != 2 || strings.Contains(got, `serial_number="S0"} 0`) {
		t.Errorf("healthy and degraded devices:\n%s", got)
	}
}

// TestFloor: a counter keeps its value in both dialects when the next source read it earlier, even
// if only AMD's names are exported.
func TestFloor(t *testing.T) {
	for _, csv := range []string{amdCounters, "DCGM_FI_DEV_GPU_UTIL, gauge, Use.\n"} {
		list := amdList(t, csv, namesOf(t, Settings{Fields: amdFields}), false)
		c := &pageClock{time.Now()}
		board := &view.Board{}
		r := exposition.New(board, exposition.Options{Now: c.now})
		for i, energy := range []float64{5000, 4000, 6000} {
			f := amdFeed(list)
			f.Row[1] = energy
			f.Tick(c.Time)
			board.Store(viewtest.Board(uint64(i+2), f).Load())
			want := max(energy, 5000)
			page := string(r.Page(exposition.Text, false))
			ours := strings.Contains(csv, "ENERGY")
			if !strings.Contains(page, fmt.Sprintf(`serial_number="S0"} %.0f`, want*1000)) || ours && !strings.Contains(page, fmt.Sprintf("} %.0f\n", want)) {
				t.Errorf("after %v mJ: want %v mJ on\n%s", energy, want, page)
			}
		}
	}
}

// TestParts: partitions are numbered consecutively; values of the board appear under its first
// partition with its owner, but not values that partitions have themselves.
func TestParts(t *testing.T) {
	list := amdList(t, amdCounters, namesOf(t, Settings{Fields: []string{"GPU_GFX_ACTIVITY", "GPU_TOTAL_VRAM", "GPU_NODES_TOTAL"}, PodLabels: []Pair{{Name: "team", Value: "t"}}}), false)
	part := func(i, p int) collector.Device {
		d := amdGPU(i)
		d.Level, d.Parent, d.Instance.ID = field.Instance, d.ID, fmt.Sprint(p)
		d.ID += "/" + d.Instance.ID
		return d
	}
	source := func(i int, parts ...collector.Device) *viewtest.Feed {
		columns := []collector.Column{{Device: 0, Field: 203}, {Device: 0, Field: 250}}
		for p := range parts {
			columns = append(columns, collector.Column{Device: p + 1, Field: 250})
		}
		f := viewtest.Simple(list, append([]collector.Device{amdGPU(i)}, parts...), columns)
		for c := range f.Row {
			f.Row[c] = float64(100*i + c)
		}
		f.Tick(time.Now())
		return f
	}
	one, two := source(3, part(3, 0), part(3, 1)), source(4)
	users := map[string][]view.Owner{
		one.Devices[1].ID: {{Labels: []collector.Label{{Name: "hpc_job", Value: "7"}, {Name: "pod_name", Value: "a"}}, Facts: []collector.Label{{Name: "team", Value: "blue"}}}},
		one.Devices[2].ID: {{Labels: []collector.Label{{Name: "pod", Value: "b"}}}},
	}
	page := pageOf(t, viewtest.Board(1, two, one), exposition.Options{Hostname: "n", Owners: owners(func(d *collector.Device) []view.Owner { return users[d.ID] })}, exposition.Text)
	var got []string
	empty := regexp.MustCompile(`[a-z_]+="(102-G30211-00)?",?`)
	for _, line := range strings.Split(page, "\n") {
		if strings.HasPrefix(line, "gpu_") {
			line = strings.ReplaceAll(empty.ReplaceAllString(line, ""), ",}", "}")
			got = append(got, line)
		}
	}
	want := []string{
		`gpu_gfx_activity{gpu_id="8",gpu_partition_id="0",hostname="n",serial_number="S4"} 400`,
		`gpu_gfx_activity{gpu_id="6",gpu_partition_id="0",hostname="n",job_id="7",pod="a",serial_number="S3",team="blue"} 300`,
		`gpu_nodes_total{hostname="n"} 3`,
		`gpu_total_vram{gpu_id="8",gpu_partition_id="0",hostname="n",serial_number="S4"} 401`,
		`gpu_total_vram{gpu_id="6",gpu_partition_id="0",hostname="n",job_id="7",pod="a",serial_number="S3",team="blue"} 302`,
		`gpu_total_vram{gpu_id="7",gpu_partition_id="1",hostname="n",pod="b",serial_number="S3"} 303`,
	}
	testkit.Equal(t, "AMD's series", want, got)
}

// FuzzNames: with any configuration, the page can be parsed and every name on it is legal.
func FuzzNames(f *testing.F) {
	f.Add("amd_", "GPU_CLOCK,GPU_HEALTH", "GPU_UUID", "rack", "a", "team", "example.com/team")
	f.Add("9", "", "KFD_PROCESS_ID,POD", "gpu_id", "\xff\n\"", "__x", "")
	f.Add("DCGM_FI_DEV_", "gpu_gfx_activity", "", "clock_type", "\x00", "le", "k")
	f.Fuzz(func(t *testing.T, prefix, fields, labels, custom, value, pod, key string) {
		split := func(s string) []string {
			if s == "" {
				return nil
			}
			return strings.Split(s, ",")
		}
		n, _ := NewNames(Settings{
			Prefix: prefix, Fields: split(fields), Labels: split(labels), Custom: []Pair{{Name: custom, Value: value}}, PodLabels: []Pair{{Name: pod, Value: key}},
		}, nil)
		feed := amdFeed(amdList(t, amdCounters, n, false))
		feed.Tick(time.Now())
		reg := prometheus.NewRegistry()
		page := pageOf(t, viewtest.Board(1, feed), exposition.Options{Hostname: "n", Registerer: reg}, exposition.Text)
		familiesOf(t, []byte(page))
		testkit.Equal(t, "labels dropped that were said to be served", 0.0, leftOut(t, reg)["label"])
	})
}

// TestAllocations: a page with both dialects allocates no more than one without.
func TestAllocations(t *testing.T) {
	allocations := func(list field.List) float64 {
		f, c := amdFeed(list), &pageClock{time.Now()}
		r := exposition.New(viewtest.Board(1, f), exposition.Options{Hostname: "node-1", Now: c.now})
		render := func() {
			f.Tick(c.Time)
			r.Page(exposition.Text, false)
		}
		for range 4 {
			render()
		}
		return testing.AllocsPerRun(100, render)
	}
	verdicts := &events.Snapshot{}
	names, _ := NewNames(Settings{}, func() *events.Snapshot { return verdicts })
	both := amdList(t, amdCounters, names, false)
	ours := both
	ours.Dialect = nil
	testkit.AtMost(t, "allocations of a page with both dialects", allocations(ours), allocations(both))
}
