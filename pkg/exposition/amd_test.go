package exposition

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"warpgauge/internal/testkit/golden"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// amdList is a counter and a gauge of ours, with AMD's names next to them.
func amdList(t testing.TB, csv string, amd field.AMD) field.List {
	t.Helper()
	list, problems, err := field.Parse(strings.NewReader(csv), field.ParseOptions{Strict: true})
	if err != nil {
		t.Fatal(problems, err)
	}
	list, why := list.WithAMD(amd)
	if len(why) > 0 {
		t.Fatal(why)
	}
	return list
}

func amdGPU(i int) collector.Device {
	d := gpu(i)
	d.Facts = nil
	d.AMD = []collector.Label{{Name: "card_model", Value: "102-G30211-00"}, {Name: "serial_number", Value: fmt.Sprint("S", i)}}
	return d
}

const amdCounters = "DCGM_FI_DEV_GPU_UTIL, gauge, Use.\nDCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, counter, Energy.\n"

var amdFields = []string{"GPU_GFX_ACTIVITY", "GPU_ENERGY_CONSUMED", "GPU_ECC_CORRECT_GFX", "GPU_NODES_TOTAL", "GPU_HEALTH"}

// amdFeed is two GPUs of AMD and one of another vendor.
func amdFeed(list field.List) *feed {
	other := gpu(2)
	other.Facts = nil
	ras := func(block string) []collector.Label {
		return []collector.Label{{Name: "block", Value: block}, {Name: "severity", Value: "ce"}}
	}
	f := newFeed(list, []collector.Device{amdGPU(0), amdGPU(1), other}, []collector.Column{
		{Device: 0, Field: 203}, {Device: 0, Field: 156}, {Device: 0, Field: field.AMDRASErrors, Labels: ras("gfx")}, {Device: 0, Field: field.AMDRASErrors, Labels: ras("umc")},
		{Device: 1, Field: 203}, {Device: 1, Field: 156}, {Device: 2, Field: 203}, {Device: 2, Field: 156},
	})
	copy(f.row, []float64{70, 5_000_001, 3, 4, 50, math.NaN(), 10, 9})
	return f
}

// TestAMDFormats: both dialects on one page, in each format; AMD's are gauges, counters too.
func TestAMDFormats(t *testing.T) {
	f := amdFeed(amdList(t, amdCounters, field.AMD{Fields: amdFields}))
	f.tick(time.Now())
	health := map[string]float64{f.Devices[0].ID: 0, f.Devices[1].ID: math.NaN()}
	r := New(boardOf(f), Options{Hostname: "node-1", HostnameLabel: "Hostname", Health: func(d *collector.Device) float64 { return health[d.ID] }})
	golden.Check(t, filepath.Join("testdata", "amd.prom"), pageOf(t, r, Text))
	golden.Check(t, filepath.Join("testdata", "amd.openmetrics"), pageOf(t, r, OpenMetrics))
	golden.Check(t, filepath.Join("testdata", "amd.protobuf.txt"), describe(t, pageOf(t, r, Protobuf)))
	if got := r.layout.stats; got.duplicates+got.misfits+got.labels > 0 {
		t.Errorf("left out: %+v", got)
	}
}

// TestAMDInPlace: a device of AMD has AMD's names only, any other has ours.
func TestAMDInPlace(t *testing.T) {
	f := amdFeed(amdList(t, amdCounters, field.AMD{Prefix: "amd_", Fields: amdFields, InPlace: true}))
	f.tick(time.Now())
	page := pageOf(t, New(boardOf(f), Options{}), Text)
	for _, line := range strings.Split(page, "\n") {
		if ours := strings.HasPrefix(line, "DCGM_"); ours && !strings.Contains(line, `gpu="2"`) || strings.HasPrefix(line, "gpu_") {
			t.Errorf("%s\nis on the page:\n%s", line, page)
		}
	}
	for _, want := range []string{"DCGM_FI_DEV_GPU_UTIL{", "amd_gpu_gfx_activity{", "amd_gpu_nodes_total{hostname=\"\"} 2"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s on the page:\n%s", want, page)
		}
	}
	if strings.Contains(page, "gpu_health") {
		t.Errorf("health without a source of it:\n%s", page)
	}
}

// TestAMDFloor: a counter that the next source has read earlier stays in both dialects, also
// if ours is not shown.
func TestAMDFloor(t *testing.T) {
	for _, csv := range []string{amdCounters, "DCGM_FI_DEV_GPU_UTIL, gauge, Use.\n"} {
		list := amdList(t, csv, field.AMD{Fields: amdFields})
		board, now := boardOf(), time.Now()
		r := New(board, Options{Now: func() time.Time { return now }})
		for i, energy := range []float64{5000, 4000, 6000} {
			f := amdFeed(list)
			f.row[1] = energy
			f.tick(now)
			board.Store(viewOf(uint64(i+2), f))
			want := max(energy, 5000)
			page := pageOf(t, r, Text)
			ours := strings.Contains(csv, "ENERGY")
			if !strings.Contains(page, fmt.Sprintf(`serial_number="S0"} %.0f`, want*1000)) || ours && !strings.Contains(page, fmt.Sprintf("} %.0f\n", want)) {
				t.Errorf("after %v mJ: want %v mJ on\n%s", energy, want, page)
			}
			now = now.Add(time.Second)
		}
	}
}

// TestAMDParts: partitions are numbered through, what is of the board is shown under its first
// partition and with its owner, and what partitions have is not shown of the board.
func TestAMDParts(t *testing.T) {
	list := amdList(t, amdCounters, field.AMD{Fields: []string{"GPU_GFX_ACTIVITY", "GPU_TOTAL_VRAM", "GPU_NODES_TOTAL"}, PodLabels: []field.NameValue{{Name: "team", Value: "t"}}})
	part := func(i, p int) collector.Device {
		d := amdGPU(i)
		d.Level, d.Parent, d.Instance.ID = field.Instance, d.ID, fmt.Sprint(p)
		d.ID += "/" + d.Instance.ID
		return d
	}
	source := func(i int, parts ...collector.Device) *feed {
		columns := []collector.Column{{Device: 0, Field: 203}, {Device: 0, Field: 250}}
		for p := range parts {
			columns = append(columns, collector.Column{Device: p + 1, Field: 250})
		}
		f := newFeed(list, append([]collector.Device{amdGPU(i)}, parts...), columns)
		for c := range f.row {
			f.row[c] = float64(100*i + c)
		}
		f.tick(time.Now())
		return f
	}
	one, two := source(3, part(3, 0), part(3, 1)), source(4)
	owners := &testOwners{by: map[string][]Owner{
		one.Devices[1].ID: {{Labels: []collector.Label{{Name: "hpc_job", Value: "7"}, {Name: "pod_name", Value: "a"}}, AMD: []collector.Label{{Name: "team", Value: "blue"}}}},
		one.Devices[2].ID: {{Labels: []collector.Label{{Name: "pod", Value: "b"}}}},
	}}
	r := New(boardOf(two, one), Options{Hostname: "n", Owners: owners})
	var got []string
	for _, line := range strings.Split(pageOf(t, r, Text), "\n") {
		if strings.HasPrefix(line, "gpu_") {
			for _, empty := range []string{"card_model=\"102-G30211-00\",", "container=\"\",", "deployment_mode=\"\",", "gpu_compute_partition_type=\"\",", "gpu_memory_partition_type=\"\",",
				"hostname=\"n\",", "job_partition=\"\",", "job_user=\"\",", "namespace=\"\",", "job_id=\"\",", "pod=\"\",", ",team=\"\""} {
				line = strings.Replace(line, empty, "", 1)
			}
			got = append(got, line)
		}
	}
	want := []string{
		`gpu_gfx_activity{gpu_id="8",gpu_partition_id="0",serial_number="S4"} 400`,
		`gpu_gfx_activity{gpu_id="6",gpu_partition_id="0",job_id="7",pod="a",serial_number="S3",team="blue"} 300`,
		`gpu_nodes_total{hostname="n"} 3`,
		`gpu_total_vram{gpu_id="8",gpu_partition_id="0",serial_number="S4"} 401`,
		`gpu_total_vram{gpu_id="6",gpu_partition_id="0",job_id="7",pod="a",serial_number="S3",team="blue"} 302`,
		`gpu_total_vram{gpu_id="7",gpu_partition_id="1",pod="b",serial_number="S3"} 303`,
	}
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("got\n%s\nwant\n%s", g, w)
	}
}

// TestAMDCollision: a prefix that makes a name of ours leaves that name alone.
func TestAMDCollision(t *testing.T) {
	f := amdFeed(amdList(t, amdCounters, field.AMD{Prefix: "DCGM_FI_DEV_", Fields: []string{"GPU_GFX_ACTIVITY"}}))
	clash := field.Field{Desc: f.Fields.Fields[0].Desc, Name: "DCGM_FI_DEV_gpu_gfx_activity", Type: field.Gauge, Scale: 1}
	f.Fields.Fields = append(f.Fields.Fields, clash)
	f.tick(time.Now())
	r := New(boardOf(f), Options{})
	page := pageOf(t, r, Text)
	if r.layout.stats.misfits != 1 || strings.Contains(page, "serial_number") {
		t.Errorf("%+v\n%s", r.layout.stats, page)
	}
}

// FuzzWithAMD: whatever a configuration says, the page can be read and every name on it is legal.
func FuzzWithAMD(f *testing.F) {
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
		list, _, err := field.Parse(strings.NewReader(amdCounters), field.ParseOptions{})
		if err != nil {
			t.Fatal(err)
		}
		list, _ = list.WithAMD(field.AMD{Prefix: prefix, Fields: split(fields), Labels: split(labels),
			Custom: []field.NameValue{{Name: custom, Value: value}}, PodLabels: []field.NameValue{{Name: pod, Value: key}}})
		feed := amdFeed(list)
		feed.tick(time.Now())
		r := New(boardOf(feed), Options{Hostname: "n"})
		parse(t, pageOf(t, r, Text), Text)
		if r.layout.stats.labels > 0 {
			t.Errorf("%d labels dropped that were said to be served", r.layout.stats.labels)
		}
	})
}

// TestAMDAllocations: a page with both dialects costs no allocation more.
func TestAMDAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	allocations := func(list field.List) float64 {
		f := amdFeed(list)
		r := New(boardOf(f), Options{Hostname: "node-1", Health: func(*collector.Device) float64 { return 1 }})
		for range 4 {
			f.tick(time.Now())
			age(r)
			r.Page(Text, false)
		}
		return testing.AllocsPerRun(100, func() {
			f.tick(time.Now())
			age(r)
			r.Page(Text, false)
		})
	}
	both := amdList(t, amdCounters, field.AMD{})
	ours := both
	ours.AMD = nil
	if a, b := allocations(ours), allocations(both); b > a {
		t.Errorf("%v allocations a page with both dialects, %v without", b, a)
	}
}

// BenchmarkRenderAMD renders all readings that AMD's names need of eight GPUs, under our names,
// under AMD's, and under both.
func BenchmarkRenderAMD(b *testing.B) {
	for _, names := range []string{"ours", "amd", "both"} {
		b.Run(names, func(b *testing.B) {
			b.ReportAllocs()
			list := amdList(b, amdCounters, field.AMD{InPlace: names == "amd"})
			list.Fields = nil
			seen := map[string]bool{}
			f := newFeed(list, nil, nil)
			for d := range 8 {
				f.Devices = append(f.Devices, amdGPU(d))
			}
			for _, n := range list.AMD.Names() {
				for _, s := range n.Of {
					var labels []collector.Label
					for _, w := range s.Where {
						labels = append(labels, collector.Label(w))
					}
					if s.Index.From != "" {
						labels = append(labels, collector.Label{Name: s.Index.From, Value: s.Index.Prefix + "0"})
					}
					if key := fmt.Sprint(s.ID, labels); seen[key] {
						continue
					} else if seen[key] = true; !seen[fmt.Sprint(s.ID)] {
						seen[fmt.Sprint(s.ID)] = true
						desc, _ := field.ByID(s.ID)
						list.Fields = append(list.Fields, field.Field{Desc: desc, Name: desc.Name, Type: field.Gauge, Scale: 1})
					}
					for d := range f.Devices {
						f.Columns = append(f.Columns, collector.Column{Device: d, Field: s.ID, Labels: labels})
					}
				}
			}
			if names == "ours" {
				list.AMD = nil
			}
			benchRender(b, newFeed(list, f.Devices, f.Columns), Text, false)
		})
	}
}
