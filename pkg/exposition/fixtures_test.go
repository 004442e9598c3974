package exposition

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/accumulate"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/view"
	"warpgauge/pkg/view/viewtest"
)

var must = testkit.Must

// Descriptors of the tests, independent of the catalogue.
var (
	descTemp   = &field.Descriptor{ID: 150, Name: "TEMP", Level: field.GPU, Unit: "celsius"}
	descPower  = &field.Descriptor{ID: 155, Name: "POWER", Level: field.GPU, Unit: "W"}
	descEnergy = &field.Descriptor{ID: 156, Name: "ENERGY", Level: field.GPU, Unit: "mJ", Total: true}
	descXID    = &field.Descriptor{ID: field.XIDErrors, Name: "XID", Level: field.GPU}
	descDriver = &field.Descriptor{ID: 1, Name: "DRIVER", Kind: field.String, Level: field.Global}
	descLink   = &field.Descriptor{ID: 449, Name: "LINK", Level: field.Link, Total: true}
	descSwitch = &field.Descriptor{ID: 780, Name: "SWITCH", Level: field.Switch}
	descCPU    = &field.Descriptor{ID: 1100, Name: "CPU", Level: field.CPU}
	descPeer   = &field.Descriptor{ID: field.P2PStatus, Name: "P2P", Level: field.GPU}
)

func metric(d *field.Descriptor, name string, t field.Type, help string) field.Field {
	return field.Field{Desc: d, Name: name, Type: t, Help: help, Scale: 1}
}

type feed = viewtest.Feed

// gpus returns n GPUs × fields gauges, with realistic values.
func gpus(devices, fields int) *feed {
	list := field.List{}
	for i := range fields {
		d := &field.Descriptor{ID: field.ID(2000 + i), Level: field.GPU}
		list.Fields = append(list.Fields, metric(d, fmt.Sprintf("DCGM_FI_DEV_FIELD_%03d", i), field.Gauge, "A field of a benchmark."))
	}
	var devs []collector.Device
	var columns []collector.Column
	for d := range devices {
		devs = append(devs, gpu(d))
		for i := range fields {
			columns = append(columns, collector.Column{Device: d, Field: field.ID(2000 + i)})
		}
	}
	f := viewtest.Simple(list, devs, columns)
	vary(f, 0)
	return f
}

// vary fills the row with other values for each n: percent and megahertz, watts and ratios.
func vary(f *feed, n int) {
	for i := range f.Row {
		switch x := n + i; i % 4 {
		case 0, 1:
			f.Row[i] = float64(x * 37 % 2000)
		case 2:
			f.Row[i] = float64(x*7919%700_000) / 1000
		case 3:
			f.Row[i] = math.Abs(math.Sin(float64(x)))
		}
	}
}

func gpu(i int) collector.Device {
	return collector.Device{
		ID:       fmt.Sprintf("GPU-%08x-2222-3333-4444-555555555555", i),
		Level:    field.GPU,
		GPU:      fmt.Sprint(i),
		UUID:     fmt.Sprintf("GPU-%08x-2222-3333-4444-555555555555", i),
		PCIBusID: fmt.Sprintf("00000000:%02X:00.0", i),
		Node:     fmt.Sprintf("nvidia%d", i),
		Model:    "NVIDIA H100 80GB HBM3",
		Facts:    []collector.Label{{Name: "DCGM_FI_DRIVER_VERSION", Value: "570.1"}},
	}
}

// testOwners is a table of owners.
type testOwners struct {
	version uint64
	by      map[string][]view.Owner
	split   []field.ID // of every device
	shares  *view.Shares
}

func (o *testOwners) Version() uint64 { return o.version }

// Owners lets links and compute instances inherit, as the real table does.
func (o *testOwners) Owners(d *collector.Device) []view.Owner {
	if own := o.by[d.ID]; len(own) > 0 || d.Level != field.Link && d.Level != field.ComputeInstance {
		return own
	}
	return o.by[d.Parent]
}
func (o *testOwners) Split(_ *collector.Device, f field.ID) bool { return slices.Contains(o.split, f) }
func (o *testOwners) Shares() *view.Shares                       { return o.shares }

func ownerOf(pairs ...string) (o view.Owner) { o.Labels = labelsFrom(pairs...); return o }
func labelsFrom(pairs ...string) (l []collector.Label) {
	for i := 0; i < len(pairs); i += 2 {
		l = append(l, collector.Label{Name: pairs[i], Value: pairs[i+1]})
	}
	return l
}

// testStore is a store whose series a test sets.
type testStore struct {
	sync.Mutex
	board   *view.Board
	version uint64
	series  []accumulate.Series
	synced  int
}

func (s *testStore) Sync(time.Time) *view.View   { s.synced++; return s.board.Load() }
func (s *testStore) Rows() uint64                { return 0 }
func (s *testStore) Version() uint64             { return s.version }
func (s *testStore) Series() []accumulate.Series { return s.series }

// testSelf is a part of the page about ourselves.
type testSelf struct {
	version, asked            uint64
	text, openMetrics, protob []byte
}

func (s *testSelf) Version() uint64     { s.asked++; return s.version }
func (s *testSelf) Text() []byte        { return s.text }
func (s *testSelf) OpenMetrics() []byte { return s.openMetrics }
func (s *testSelf) Protobuf() []byte    { return s.protob }

// pageOf returns the newest page for a scrape minRenderInterval after the last one.
func pageOf(t testing.TB, r *Renderer, f Format) string {
	t.Helper()
	age(r)
	return string(r.Page(f, false))
}

// age makes the rows read so far old enough to be replaced by newer ones.
func age(r *Renderer) {
	const long = -time.Minute
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.taken.at.IsZero() {
		r.taken.at = r.taken.at.Add(long)
	}
	for i := range r.pages {
		if p := r.pages[i].Load(); p != nil {
			older := page{data: p.data, taken: r.taken, generation: p.generation, expires: p.expires, zipped: p.zipped}
			if p.zipped != nil {
				older.once.Do(func() {})
			}
			r.pages[i].Store(&older)
		}
	}
}

// node is a view with every level of device, awkward text, and all kinds of accumulated series.
func node(t testing.TB) (*view.Board, Options, store) {
	t.Helper()
	fields := field.List{Fields: []field.Field{
		metric(descTemp, "DCGM_FI_DEV_GPU_TEMP", field.Gauge, "GPU temperature (in C)."),
		metric(descPower, "DCGM_FI_DEV_POWER_USAGE", field.Gauge, `Power "draw" in W, \ and`+"\nmore."),
		metric(descEnergy, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", field.Counter, "Energy since boot (in mJ)."),
		{Desc: descEnergy, Name: "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION_JOULES", Type: field.Counter, Help: "Energy since boot.", Scale: 0.001},
		{Desc: descEnergy, Name: "gpu_energy_joules_total", Type: field.Counter, Help: "Energy since boot.", Scale: 0.001},
		metric(descXID, "DCGM_FI_DEV_XID_ERRORS", field.Gauge, "Value of the last XID error encountered."),
		metric(descDriver, "DCGM_FI_DRIVER_VERSION", field.Label, "Driver version."),
		metric(descLink, "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", field.Counter, "Bytes."),
		metric(descSwitch, "DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT", field.Gauge, "Switch temperature."),
		metric(descCPU, "DCGM_FI_DEV_CPU_UTIL_TOTAL", field.Untyped, ""),
		metric(descPeer, "DCGM_EXP_P2P_STATUS", field.Gauge, "State of a pair of GPUs."),
	}}
	bad := gpu(1)
	bad.Model = "B\\ad \"model\"\nname \xff"
	devices := []collector.Device{
		gpu(0), bad,
		{ID: "GPU-1/7", Parent: "GPU-1", Level: field.Instance, GPU: "1", UUID: bad.UUID, PCIBusID: bad.PCIBusID, Node: "nvidia1", Model: "M", Instance: collector.Instance{Profile: "1g.10gb", ID: "7"}},
		{ID: "GPU-1/7/0", Parent: "GPU-1/7", Level: field.ComputeInstance, GPU: "1", UUID: bad.UUID, PCIBusID: bad.PCIBusID, Node: "nvidia1", Model: "M", Instance: collector.Instance{Profile: "1c.1g.10gb", ID: "7", ComputeID: "0"}},
		{ID: "GPU-0/link3", Parent: gpu(0).ID, Level: field.Link, Labels: labelsFrom("nvlink", "3"), GPU: "0", UUID: gpu(0).UUID, PCIBusID: gpu(0).PCIBusID, Node: "nvidia0", Model: gpu(0).Model, Facts: gpu(0).Facts},
		{ID: "switch0/link1", Parent: "switch0", Level: field.Link, Labels: labelsFrom("nvlink", "1", "nvswitch", "nvswitch0")},
		{ID: "switch0", Level: field.Switch, Labels: labelsFrom("nvswitch", "nvswitch0"), Facts: gpu(0).Facts},
		{ID: "cpu0", Level: field.CPU, Labels: labelsFrom("cpu", "0")},
		{ID: "cpu0/core5", Parent: "cpu0", Level: field.Core, Labels: labelsFrom("cpucore", "5", "cpu", "0")},
		{ID: "node", Level: field.Global},
	}
	type cell struct {
		device int
		desc   *field.Descriptor
		value  float64
		labels []collector.Label
	}
	cells := []cell{
		{0, descTemp, 41, nil}, {0, descPower, 123.456, nil}, {0, descEnergy, 9_007_199_254_740_993, nil}, {0, descXID, 79, nil},
		{1, descTemp, math.NaN(), nil}, {1, descPower, -0.1, nil}, {1, descEnergy, 9, nil}, {1, descXID, 0, nil},
		{2, descTemp, math.Inf(1), nil}, {2, descPower, 1e-9, nil},
		{3, descTemp, 1e30, nil}, {3, descPower, 0.333333333333333, nil},
		{4, descLink, 18, nil}, {5, descLink, 1 << 62, nil},
		{6, descSwitch, 55, nil}, {7, descCPU, 0.5, nil}, {8, descCPU, 1, nil}, {9, descPower, 700, nil},
		{0, descPeer, 0, labelsFrom("link_status", "OK", "peer_gpu", "1")},
		{1, descPeer, 5, labelsFrom("link_status", "NotSupported", "peer_gpu", "0")},
	}
	var columns []collector.Column
	for _, c := range cells {
		columns = append(columns, collector.Column{Device: c.device, Field: c.desc.ID, Labels: c.labels})
	}
	f := viewtest.Simple(fields, devices, columns)
	for i, c := range cells {
		f.Row[i] = c.value
	}
	f.Tick(time.Now())

	series := accumulated(f.Source)
	o := Options{
		Hostname: "node-1",
		Owners: &testOwners{by: map[string][]view.Owner{
			devices[0].ID: {
				ownerOf("pod", "train-0", "namespace", "ml", "container", "main", "err_kind", "between"),
				ownerOf("pod", "train-1", "namespace", "ml", "container", "a \"quoted\" one", "zone", "after"),
				ownerOf("pod", "train-0", "namespace", "ml", "container", "main", "err_kind", "between"), // the first again
			},
			"GPU-1/7": {ownerOf("pod", "infer", "namespace", "ml", "container", "c")},
			"switch0": {ownerOf("pod", "never")},
		}},
	}
	board := viewtest.Board(1, f)
	return board, o, &testStore{board: board, version: 1, series: series}
}

// accumulated returns series of every kind for GPUs 0 and 1 of node.
func accumulated(s *view.Source) []accumulate.Series {
	bounds := []float64{1, 2.5, 1e6}
	usage := &field.Field{Desc: descPower, Name: "DCGM_FI_DEV_POWER_SAMPLES", Type: field.Histogram, Help: "Power.", Scale: 1, Buckets: bounds}
	count := &field.Field{Desc: descXID, Name: "DCGM_EXP_XID_ERRORS_COUNT", Type: field.Gauge, Help: "XIDs in a window.", Scale: 1}
	one, none := 2.0, math.NaN()
	return []accumulate.Series{
		{Source: s, Device: 0, Field: usage, Histogram: &accumulate.Histogram{
			Count: 10, Sum: 1234.5, Bounds: bounds, Counts: []uint64{1, 2, 3, 4},
			Schema: 3, ZeroThreshold: 0.001, ZeroCount: 1, First: -16, Positive: []uint64{0, 2, 0, 0, 1, 0, 0, 0, 5, 1},
		}},
		{Source: s, Device: 1, Field: usage, Histogram: &accumulate.Histogram{Bounds: bounds, Counts: make([]uint64, 4)}},
		{Source: s, Device: 9, Field: usage, Histogram: &accumulate.Histogram{
			Count: 1, Sum: -3, Bounds: bounds, Counts: []uint64{1, 0, 0, 0}, Schema: 0, ZeroCount: 1, First: 5, Positive: []uint64{0, 0, 0},
		}},
		{Source: s, Device: 0, Field: count, Labels: labelsFrom("window_size_in_ms", "300000", "xid", "79"), Value: &one},
		{Source: s, Device: 1, Field: count, Labels: labelsFrom("window_size_in_ms", "300000"), Value: &none},
	}
}

// newNode returns a Renderer of node.
func newNode(t testing.TB, change ...func(*Options)) *Renderer {
	board, o, s := node(t)
	for _, c := range change {
		c(&o)
	}
	r := New(board, o)
	r.store = s
	return r
}

func accumulatedValue(s *view.Source, v *float64) accumulate.Series {
	return accumulate.Series{Source: s, Field: &field.Field{Desc: descXID, Name: "DCGM_EXP_XID_ERRORS_COUNT", Scale: 1}, Value: v}
}

func gunzip(t testing.TB, b []byte) string {
	t.Helper()
	in, err := gzip.NewReader(bytes.NewReader(b))
	must(t, err)
	out := testkit.Get(io.ReadAll(in))(t)
	return string(out)
}
