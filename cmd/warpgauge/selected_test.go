package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/collectors/fake"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/collector/collectortest"
	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
)

func choose(t *testing.T, gpus, switches, cpus string) *selection {
	t.Helper()
	s := &selection{log: zap.NewNop()}
	for text, at := range map[*config.Selector]string{&s.gpus: gpus, &s.switches: switches, &s.cpus: cpus} {
		parsed, err := config.ParseSelector(at)
		must(t, err)
		*text = parsed
	}
	return s
}

// shown opens a simulated node and names the devices that the selection leaves.
func shown(t *testing.T, profile string, s *selection) []string {
	t.Helper()
	f, err := fake.Factory(fake.Options{Profile: profile})
	must(t, err)
	c := s.wrap(f)()
	sources, err := c.Open(t.Context(), collectortest.Fields())
	must(t, err)
	defer c.Close()
	var names []string
	for _, src := range sources {
		for _, d := range src.Devices() {
			switch d.Level {
			case field.GPU:
				names = append(names, "gpu"+d.GPU)
			case field.Instance:
				names = append(names, "gpu"+d.GPU+"/"+d.InstanceID)
			case field.Switch:
				names = append(names, d.Switch)
			case field.CPU:
				names = append(names, "cpu"+d.CPU)
			case field.Core:
				names = append(names, "core"+d.Core)
			case field.Link:
				if d.Switch != "" {
					names = append(names, d.Switch+"/link")
				} else {
					names = append(names, "gpu"+d.GPU+"/link")
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func TestSelection(t *testing.T) {
	for _, c := range []struct {
		profile              string
		gpus, switches, cpus string
		want, never          []string // names, or beginnings of names
	}{
		{"dgx-h100", "f", "f", "f", []string{"gpu0", "gpu7", "gpu7/link", "nvswitch0", "nvswitch3"}, nil},
		{"dgx-h100", "g:2", "f", "f", []string{"gpu2", "gpu2/link", "nvswitch0"}, []string{"gpu0", "gpu1", "gpu3"}},
		{"dgx-h100", "f", "g:1", "f", []string{"gpu0", "nvswitch1"}, []string{"nvswitch0", "nvswitch2", "nvswitch1/"}},
		{"dgx-a100-mig", "f", "f", "f", []string{"gpu0", "gpu0/1", "gpu3", "gpu3/0", "gpu4", "gpu7"}, nil},
		{"dgx-a100-mig", "g", "f", "f", []string{"gpu0", "gpu3", "gpu4"}, []string{"gpu0/1", "gpu3/0"}},
		{"dgx-a100-mig", "i", "f", "f", []string{"gpu0/1", "gpu3/0"}, []string{"gpu4", "gpu5"}},
		{"dgx-a100-mig", "g:4,5+i:7", "f", "f", []string{"gpu2/7", "gpu4", "gpu5"}, []string{"gpu0", "gpu6", "gpu2/8"}},
		{"gb200", "f", "f", "g", []string{"gpu0", "cpu0"}, []string{"core"}},
		{"gb200", "f", "f", "i:0-3", []string{"core0", "core3"}, []string{"cpu", "core4", "core7"}},
	} {
		got := shown(t, c.profile, choose(t, c.gpus, c.switches, c.cpus))
		what := fmt.Sprintf("%s with -d %s -s %s -p %s", c.profile, c.gpus, c.switches, c.cpus)
		for _, name := range c.want {
			if !slices.Contains(got, name) {
				t.Errorf("%s lacks %s: %v", what, name, got)
			}
		}
		for _, name := range c.never {
			if i := slices.IndexFunc(got, func(s string) bool { return strings.HasPrefix(s, name) }); i >= 0 {
				t.Errorf("%s shows %s", what, got[i])
			}
		}
	}
}

// With f a GPU that has instances is on the page for what they do not tell, so
// that its temperature does not disappear and nothing is told twice.
func TestFlexSelectionTellsNothingTwice(t *testing.T) {
	f, err := fake.Factory(fake.Options{Profile: "dgx-a100-mig"})
	must(t, err)
	sources, err := choose(t, "f", "f", "f").wrap(f)().Open(t.Context(), collectortest.Fields())
	must(t, err)
	told := map[string]map[field.ID]int{} // by GPU: how many levels tell of a field
	temperatures := 0
	for _, src := range sources {
		devices := src.Devices()
		levels := map[string]map[field.ID]map[field.Level]bool{}
		for _, c := range src.Columns() {
			d := &devices[c.Device]
			if d.Level != field.GPU && d.Level != field.Instance {
				continue
			}
			if levels[d.GPU] == nil {
				levels[d.GPU] = map[field.ID]map[field.Level]bool{}
				told[d.GPU] = map[field.ID]int{}
			}
			if levels[d.GPU][c.Field] == nil {
				levels[d.GPU][c.Field] = map[field.Level]bool{}
			}
			levels[d.GPU][c.Field][d.Level] = true
			told[d.GPU][c.Field] = len(levels[d.GPU][c.Field])
			if c.Field == 150 && d.Level == field.GPU {
				temperatures++
			}
		}
	}
	if temperatures != 8 {
		t.Errorf("%d GPUs tell their temperature, want 8", temperatures)
	}
	for gpu, fields := range told {
		for id, levels := range fields {
			if levels != 1 {
				t.Errorf("gpu %s: field %d is told by the GPU and by its instances", gpu, id)
			}
		}
	}
}

// An XID of a whole GPU is none of its instances' XIDs: both are told.
func TestFlexSelectionKeepsXIDs(t *testing.T) {
	const used = 252
	s := choose(t, "f", "f", "f")
	parts := instanceFields{"GPU-1": {field.XIDErrors: true, field.XIDEvent: true, used: true}}
	for id, want := range map[field.ID]bool{field.XIDErrors: false, field.XIDEvent: false, used: true} {
		d := collector.Device{ID: "GPU-1", Level: field.GPU}
		if got := s.repeats(collector.Column{Field: id}, &d, parts); got != want {
			t.Errorf("field %d of a GPU whose instances have it: hidden %v, want %v", id, got, want)
		}
	}
}

// What is selected obeys the contract of collectors as the whole does.
func TestSelectionConforms(t *testing.T) {
	for _, gpus := range []string{"f", "g", "g:1-3,6"} {
		t.Run(gpus, func(t *testing.T) {
			by := choose(t, gpus, "f", "f")
			collectortest.Run(t, collectortest.Harness{Name: "fake", New: func(tb testing.TB) collectortest.Rig {
				tb.Helper()
				return selectedRig(tb, by)
			}})
		})
	}
}

func selectedRig(tb testing.TB, s *selection) collectortest.Rig {
	tb.Helper()
	w, err := fake.NewWorld(fake.Options{Profile: "dgx-a100-mig"})
	must(tb, err)
	tb.Cleanup(w.Release)
	sources, err := w.Collector().Open(tb.Context(), collectortest.Fields())
	must(tb, err)
	board := func(id string) []fake.Span {
		for _, src := range sources {
			for _, d := range src.Devices() {
				if d.ID == id {
					return fake.One(index(d.GPU))
				}
			}
		}
		tb.Fatalf("no board %q", id)
		return nil
	}
	inject := func(f fake.Fault) func() {
		heal, err := w.Inject(f)
		if err != nil {
			tb.Fatal(err)
		}
		return heal
	}
	lost := map[string]func(){}
	return collectortest.Rig{
		Factory:       s.wrap(w.Collector),
		LoseDevice:    func(id string) { lost[id] = inject(fake.Fault{Kind: fake.Lost, GPUs: board(id)}) },
		RestoreDevice: func(id string) { lost[id]() },
		Hang:          func(id string) func() { return inject(fake.Fault{Kind: fake.Hang, GPUs: board(id)}) },
		ChangeColumns: func() { inject(fake.Fault{Kind: fake.Devices, Count: 2}) },
		FailOpen:      func() func() { return inject(fake.Fault{Kind: fake.OpenFails}) },
		RaiseEvent: func(id string, _ field.ID, v float64) {
			inject(fake.Fault{Kind: fake.XID, GPUs: board(id), XID: int(v)})
		},
	}
}

func TestSelectionOfNothing(t *testing.T) {
	f, err := fake.Factory(fake.Options{})
	must(t, err)
	_, err = choose(t, "g:99", "g:99", "g:99").wrap(f)().Open(t.Context(), collectortest.Fields())
	if !errors.Is(err, collector.ErrNoDevices) || !strings.Contains(err.Error(), "--devices=g:99") {
		t.Errorf("Open = %v, want ErrNoDevices and the selectors", err)
	}
}

func TestSelectionWarnsOnce(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	s := choose(t, "g:0,40-41+i:3", "g:9", "i:7")
	s.log = zap.New(core)
	f, err := fake.Factory(fake.Options{})
	must(t, err)
	for range 2 {
		_, err := s.wrap(f)().Open(t.Context(), collectortest.Fields())
		must(t, err)
	}
	if logs.Len() != 1 || logs.All()[0].ContextMap()["device"] != "GPU 40, GPU 41, MIG instance 3, switch 9, core 7" {
		t.Errorf("log = %v, want one line that names what does not exist", logs.All())
	}
}

func TestSelectionPassesRescanOn(t *testing.T) {
	s := choose(t, "f", "f", "f")
	f, err := fake.Factory(fake.Options{})
	must(t, err)
	if _, ok := s.wrap(f)().(collector.Rescanner); !ok {
		t.Error("a collector that can rescan has lost the ability")
	}
	if _, ok := s.wrap(func() collector.Collector { return plain{} })().(collector.Rescanner); ok {
		t.Error("a collector that cannot rescan claims to")
	}
}

type plain struct{ collector.Collector }

// three is a source of three devices with a column each and a scripted error.
type three struct{ err error }

func (three) Devices() []collector.Device {
	return []collector.Device{{ID: "a", Level: field.GPU, GPU: "0"}, {ID: "b", Level: field.GPU, GPU: "1"}, {ID: "c", Level: field.GPU, GPU: "2"}}
}
func (three) Columns() []collector.Column {
	return []collector.Column{{Device: 0}, {Device: 1}, {Device: 2}}
}
func (s three) Sample(row []float64, due []bool) error {
	for i := range row {
		if due[i] {
			row[i] = float64(10 + i)
		}
	}
	return s.err
}

func TestNarrowedSource(t *testing.T) {
	src := choose(t, "g:1-2", "f", "f").narrow(three{}, nil)
	if len(src.Devices()) != 2 || src.Devices()[0].ID != "b" || len(src.Columns()) != 2 || src.Columns()[1].Device != 1 {
		t.Fatalf("devices %v and columns %v, want b and c with a column each", src.Devices(), src.Columns())
	}
	row := []float64{math.NaN(), 5}
	must(t, src.Sample(row, []bool{true, false}))
	if row[0] != 11 || row[1] != 5 {
		t.Errorf("row = %v, want [11 5]: what is due is read, the rest keeps its value", row)
	}
	due := []bool{true, true}
	if n := testing.AllocsPerRun(100, func() { _ = src.Sample(row, due) }); n != 0 {
		t.Errorf("%v allocations per sample, want 0", n)
	}
}

func TestNarrowedErrors(t *testing.T) {
	lost := func(i int) error { return &collector.DeviceError{Device: i, Err: collector.ErrDeviceLost} }
	s := choose(t, "g:1-2", "f", "f")
	for _, c := range []struct {
		in   error
		want []int // devices named; nil: no error; -1: an error that names none
	}{
		{nil, nil},
		{lost(0), nil}, // hidden
		{lost(1), []int{0}},
		{lost(2), []int{1}},
		{fmt.Errorf("sample: %w", lost(2)), []int{1}},
		{errors.Join(lost(0), lost(1), lost(2)), []int{0, 1}},
		{errors.Join(lost(0), nil), nil},
		{collector.ErrColumnsChanged, []int{-1}},
		{lost(77), []int{77}}, // a bug of the collector's stays visible
	} {
		got := s.narrow(three{c.in}, nil).Sample(make([]float64, 2), make([]bool, 2))
		if named := devicesOf(got); !slices.Equal(named, c.want) {
			t.Errorf("%v becomes %v, which names %v, want %v", c.in, got, named, c.want)
		}
		if c.want != nil && c.want[0] >= 0 && !errors.Is(got, collector.ErrDeviceLost) {
			t.Errorf("%v becomes %v, which has lost its reason", c.in, got)
		}
	}
}

// devicesOf lists the devices that err names.
func devicesOf(err error) (named []int) {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			named = append(named, devicesOf(e)...)
		}
		return named
	}
	var one *collector.DeviceError
	if errors.As(err, &one) {
		return []int{one.Device}
	}
	return []int{-1}
}
