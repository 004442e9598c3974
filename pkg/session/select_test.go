package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
)

func choose(t *testing.T, gpus, switches, cpus string) (out Selection) {
	t.Helper()
	for text, at := range map[*Selector]string{&out.GPUs: gpus, &out.Switches: switches, &out.CPUs: cpus} {
		parsed := testkit.Get(config.ParseSelector(at))(t)
		*text = parsed
	}
	return out
}

// extended is a collector with further sources.
type extended struct {
	collector.Collector
	more []collector.Source
}

func (e *extended) Open(ctx context.Context, fields field.List) ([]collector.Source, error) {
	sources, err := e.Collector.Open(ctx, fields)
	return append(sources, e.more...), err
}

// Fields of the simulated hardware below.
const (
	temperature field.ID = 150
	used        field.ID = 252
)

// hardware is a node with the given number of GPUs with one link, switches with two links, and CPUs with four
// cores. mig names the instances of a GPU.
func hardware(gpus, switches, cpus int, mig map[int][]string) (out []collector.Source) {
	for i := range gpus {
		n := fmt.Sprint(i)
		id := "GPU-" + n
		s := &stub{
			devices: []collector.Device{{ID: id, Level: field.GPU, GPU: n}, {ID: id + "/link0", Parent: id, Level: field.Link, GPU: n, Labels: labels("nvlink", "0")}},
			columns: []collector.Column{{Field: temperature}, {Field: used}, {Field: field.XIDErrors}, {Device: 1, Field: 1530}},
		}
		for j, instance := range mig[i] {
			s.devices = append(s.devices, collector.Device{ID: id + "/" + instance, Parent: id, Level: field.Instance, GPU: n, Instance: collector.Instance{ID: instance}})
			s.columns = append(s.columns, collector.Column{Device: 2 + j, Field: used}, collector.Column{Device: 2 + j, Field: field.XIDErrors})
		}
		out = append(out, s)
	}
	for i := range switches {
		name := fmt.Sprintf("nvswitch%d", i)
		out = append(out, &stub{
			devices: []collector.Device{
				{ID: name, Level: field.Switch, Labels: labels("nvswitch", name)},
				{ID: name + "/0", Parent: name, Level: field.Link, Labels: labels("nvlink", "0", "nvswitch", name)},
				{ID: name + "/1", Parent: name, Level: field.Link, Labels: labels("nvlink", "1", "nvswitch", name)},
			},
			columns: []collector.Column{{Field: 701}, {Device: 1, Field: 702}, {Device: 2, Field: 702}},
		})
	}
	for i := range cpus {
		n := fmt.Sprint(i)
		s := &stub{devices: []collector.Device{{ID: "cpu" + n, Level: field.CPU, Labels: labels("cpu", n)}}, columns: []collector.Column{{Field: 1100}}}
		for j := range 4 {
			core := fmt.Sprint(4*i + j)
			s.devices = append(s.devices, collector.Device{ID: "core" + core, Parent: "cpu" + n, Level: field.Core, Labels: labels("cpucore", core, "cpu", n)})
			s.columns = append(s.columns, collector.Column{Device: 1 + j, Field: 1101})
		}
		out = append(out, s)
	}
	return out
}

func labels(pairs ...string) (out []collector.Label) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, collector.Label{Name: pairs[i], Value: pairs[i+1]})
	}
	return out
}

// shown binds sources and names the selected devices, or columns as "device field".
func shown(t *testing.T, sel Selection, sources []collector.Source) (devices, columns []string) {
	t.Helper()
	for _, w := range bind(t, oneField, Options{Select: sel}, sources...).workers {
		for _, d := range w.view.Devices {
			devices = append(devices, d.ID)
		}
		for _, c := range w.view.Columns {
			columns = append(columns, fmt.Sprintf("%s %d", w.view.Devices[c.Device].ID, c.Field))
		}
	}
	slices.Sort(devices)
	return devices, columns
}

// TestBoardsOfSelectedInstances: a GPU is read for the health of its selected instances, and not shown.
func TestBoardsOfSelectedInstances(t *testing.T) {
	d, _ := field.ByID(temperature)
	list := oneField
	list.Hidden = []field.Reading{{Desc: d}}
	b := bind(t, list, Options{Select: choose(t, "i:1", "f", "f")}, hardware(3, 0, 0, map[int][]string{0: {"1", "2"}, 2: {"7"}})...)
	if len(b.workers) != 1 || len(b.workers[0].view.Devices) != 2 || !b.workers[0].view.Devices[0].Unshown || b.workers[0].view.Devices[1].Unshown {
		t.Fatalf("got %+v", b.workers)
	}
	testkit.Equal(t, "its columns", []collector.Column{{Field: temperature}, {Field: field.XIDErrors}, {Device: 1, Field: used}, {Device: 1, Field: field.XIDErrors}}, b.workers[0].view.Columns)
}

func TestSelection(t *testing.T) {
	hgx := hardware(3, 2, 0, nil)
	mig := hardware(3, 0, 0, map[int][]string{0: {"1", "2"}, 2: {"7", "8"}})
	grace := hardware(1, 0, 2, nil)
	for _, c := range []struct {
		sources              []collector.Source
		gpus, switches, cpus string
		want                 string
	}{
		{hgx, "f", "f", "f", "GPU-0 GPU-0/link0 GPU-1 GPU-1/link0 GPU-2 GPU-2/link0 nvswitch0 nvswitch0/0 nvswitch0/1 nvswitch1 nvswitch1/0 nvswitch1/1"},
		{hgx, "g:2", "f", "f", "GPU-2 GPU-2/link0 nvswitch0 nvswitch0/0 nvswitch0/1 nvswitch1 nvswitch1/0 nvswitch1/1"},
		{hgx, "g:0", "g:1", "f", "GPU-0 GPU-0/link0 nvswitch1"},
		{hgx, "g:0", "i:1", "f", "GPU-0 GPU-0/link0 nvswitch0/1 nvswitch1/1"},
		{mig, "f", "f", "f", "GPU-0 GPU-0/1 GPU-0/2 GPU-0/link0 GPU-1 GPU-1/link0 GPU-2 GPU-2/7 GPU-2/8 GPU-2/link0"},
		{mig, "g", "f", "f", "GPU-0 GPU-0/link0 GPU-1 GPU-1/link0 GPU-2 GPU-2/link0"},
		{mig, "i", "f", "f", "GPU-0/1 GPU-0/2 GPU-2/7 GPU-2/8"},
		{mig, "g:1,2+i:7", "f", "f", "GPU-1 GPU-1/link0 GPU-2 GPU-2/7 GPU-2/link0"},
		{grace, "f", "f", "g", "GPU-0 GPU-0/link0 cpu0 cpu1"},
		{grace, "f", "f", "i:0-2,7", "GPU-0 GPU-0/link0 core0 core1 core2 core7"},
	} {
		got, _ := shown(t, choose(t, c.gpus, c.switches, c.cpus), c.sources)
		testkit.Equal(t, fmt.Sprintf("-d %s -s %s -p %s", c.gpus, c.switches, c.cpus), strings.Fields(c.want), got)
	}
}

// With f a GPU with instances keeps the readings that they lack, so that its temperature stays on the page
// and nothing is reported twice. XIDs of the whole GPU do not belong to its instances.
func TestFlexibleSelectionReportsNothingTwice(t *testing.T) {
	mig := hardware(2, 0, 0, map[int][]string{0: {"1"}})
	for gpus, want := range map[string][]string{
		"f": {
			"GPU-0 150", "GPU-0 230", "GPU-0/link0 1530", "GPU-0/1 252", "GPU-0/1 230",
			"GPU-1 150", "GPU-1 252", "GPU-1 230", "GPU-1/link0 1530",
		},
		"g":   {"GPU-0 150", "GPU-0 252", "GPU-0 230", "GPU-0/link0 1530", "GPU-1 150", "GPU-1 252", "GPU-1 230", "GPU-1/link0 1530"},
		"i:1": {"GPU-0/1 252", "GPU-0/1 230"},
	} {
		_, got := shown(t, choose(t, gpus, "f", "f"), mig)
		testkit.Equal(t, fmt.Sprintf("-d %s", gpus), want, got)
	}
}

func TestSelectionOfNothing(t *testing.T) {
	s := New(newNode(t, 0).Open, oneField, Options{Select: choose(t, "g:99", "g:99", "g:99")})
	_, err := s.bind(hardware(1, 1, 1, nil))
	testkit.Equal(t, "error for no device", collector.ErrNoDevices, err, cmpopts.EquateErrors())
	testkit.Has(t, "error for no device", fmt.Sprint(err), "--devices=g:99")
	idle := &stub{devices: devices(2), columns: []collector.Column{{Device: 1, Field: 60001}}}
	s = New(newNode(t, 0).Open, oneField, Options{Select: choose(t, "g:0", "f", "f")})
	_, err = s.bind([]collector.Source{idle})
	testkit.Equal(t, "error for a device without columns", collector.ErrNothingToRead, err, cmpopts.EquateErrors())
}

func TestSelectionNamesWhatDoesNotExist(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	bind(t, oneField, Options{Select: choose(t, "g:0,40-41+i:3", "g:9", "i:7"), Logger: zap.New(core)}, hardware(2, 1, 1, nil)...)
	if logs.Len() != 1 || logs.All()[0].ContextMap()["device"] != "GPU 40, GPU 41, MIG instance 3, switch 9, core 7" {
		t.Errorf("log = %v, want one line that names what does not exist", logs.All())
	}
}

// Hidden columns are never due, and the others keep their values while they are not due.
func TestHiddenColumnsAreNotRead(t *testing.T) {
	var dues []bool
	src := &stub{devices: devices(3), columns: []collector.Column{{Device: 0, Field: 60001}, {Device: 1, Field: 60001}, {Device: 2, Field: 60002}}}
	src.sample = func(row []float64, due []bool) error {
		dues = slices.Clone(due)
		for i := range row {
			if due[i] {
				row[i]++
			}
		}
		return nil
	}
	for i := range src.devices {
		src.devices[i].GPU = fmt.Sprint(i)
	}
	fields := list(desc(60001, field.EachTick), desc(60002, field.Slow))
	fields.Fields[1].Interval = 5 * time.Second
	w := testWorker(t, src, fields, choose(t, "g:1-2", "f", "f"))
	w.row[0], w.row[1] = 10, 20
	var row ring.Row
	f := func(n uint64, due []bool, want ...float64) {
		t.Helper()
		w.tick(n, time.Now())
		if !w.view.Ring.Latest(&row) || !slices.Equal(row.Cells, want) || !slices.Equal(dues, due) {
			t.Errorf("tick %d: due are %v, the row is %v, want %v and %v", n, dues, row.Cells, due, want)
		}
	}
	f(0, []bool{false, true, true}, 11, 21)
	f(1, []bool{false, true, false}, 12, 21)
}

// An error of a hidden device concerns no other device. An error of a device that the source does not have is
// a bug of the collector and concerns all.
func TestErrorsOfHiddenDevices(t *testing.T) {
	lost := func(i int) error { return &collector.DeviceError{Device: i, Err: collector.ErrDeviceLost} }
	src := &stub{devices: devices(3), columns: []collector.Column{{Device: 0, Field: 60001}, {Device: 1, Field: 60001}, {Device: 2, Field: 60001}}}
	w := testWorker(t, src, oneField, choose(t, "g:1-2", "f", "f"))
	w.notify = func(error) {}
	n := uint64(0)
	for _, c := range []struct {
		in   error
		want [2]State
	}{
		{nil, [2]State{Up, Up}},
		{lost(0), [2]State{Up, Up}},
		{lost(1), [2]State{Lost, Up}},
		{lost(2), [2]State{Up, Lost}},
		{fmt.Errorf("sample: %w", lost(2)), [2]State{Up, Lost}},
		{errors.Join(lost(0), lost(1), lost(2)), [2]State{Lost, Lost}},
		{errors.Join(lost(0), nil), [2]State{Up, Up}},
		{collector.ErrColumnsChanged, [2]State{Up, Up}},
		{errors.New("all"), [2]State{Stalled, Stalled}},
		{lost(77), [2]State{Lost, Lost}},
	} {
		src.sample = func([]float64, []bool) error { return c.in }
		w.tick(n, time.Now())
		n++
		testkit.Equal(t, fmt.Sprintf("states of the devices after %v", c.in), c.want, [2]State{w.device(0, time.Now()).State, w.device(1, time.Now()).State})
	}
}

// limited is a collector that has left out devices itself.
type limited struct{ collector.Collector }

func (limited) LeftOut() int { return 44 }

// The session drops devices beyond its limits and shows the rest.
func TestImpossibleSizes(t *testing.T) {
	many := devices(MaxDevices + 10)
	for i := range many {
		many[i].ID = fmt.Sprint(i)
	}
	many[1].ID = "0"
	many[2].Model = strings.Repeat("x", maxText-1) + "ü"
	many[3].Model = "A\x1bB"
	wide := &stub{devices: many, columns: make([]collector.Column, MaxColumns+5)}
	for i := range wide.columns {
		wide.columns[i] = collector.Column{Device: i % 8, Field: 60001}
	}
	core, logs := observer.New(zap.InfoLevel)
	s := New(func() collector.Collector { return limited{newNode(t, 0).Open()} }, oneField, Options{Logger: zap.New(core), RingSpan: time.Second})
	// Without a ring of that size.
	sel := s.o.Select.over([]collector.Source{wide}, nil, s.o.Logger)
	b, ok := sel.bind(wide)
	dropped := MaxColumns/8 + 1
	testkit.ErrorIf(t, !ok || len(b.devices) != MaxDevices || len(b.columns) != MaxColumns+5-dropped, "%d devices and %d columns are bound", len(b.devices), len(b.columns))
	testkit.Equal(t, "a long text", strings.Repeat("x", maxText-1), b.devices[1].Model)
	testkit.Equal(t, "a text with a control character", "A?B", b.devices[2].Model)
	sel = s.o.Select.over([]collector.Source{wide}, nil, s.o.Logger)
	wide.columns = slices.Repeat([]collector.Column{{Field: 60001}}, MaxColumns+5)
	if b, _ := sel.bind(wide); len(b.columns) != MaxColumns || sel.cut != 5 || sel.leftOut != 10 {
		t.Errorf("%d columns are bound, %d cut off, %d devices left out", len(b.columns), sel.cut, sel.leftOut)
	}
	testkit.Get(s.bind([]collector.Source{&stub{devices: devices(1), columns: []collector.Column{{Field: 60001}}}}))(t)
	if lines := logs.FilterMessageSnippet("skipping them").All(); len(lines) != 1 || lines[0].ContextMap()["devices"] != int64(44) || s.Costs().LeftOut != 44 {
		t.Errorf("log %v, want that the collector has left out 44 devices", logs.All())
	}
}

// FuzzIdentity: a library may write anything into its buffers.
func FuzzIdentity(f *testing.F) {
	f.Add("GPU-1", "GPU-1", "NVIDIA H100")
	f.Add("GPU-\xff", "GPU-\xfe", strings.Repeat("\xff", 300))
	f.Add("", "\x00", strings.Repeat("ü", 200))
	f.Fuzz(func(t *testing.T, first, second, model string) {
		src := &stub{devices: []collector.Device{{ID: first, Model: model}, {ID: second, Parent: first}, {ID: "GPU-last"}}}
		for i := range src.devices {
			src.columns = append(src.columns, collector.Column{Device: i, Field: 60001, Labels: []collector.Label{{Name: "text", Value: model}}})
		}
		s := New(newNode(t, 0).Open, oneField, Options{})
		b := testkit.Get(s.bind([]collector.Source{src}))(t)
		v := b.sources[0]
		testkit.ErrorIf(t, len(v.Devices)+int(s.Costs().LeftOut) != 3 || len(v.Columns) != len(v.Devices), "devices %+v, columns %+v", v.Devices, v.Columns)
		seen := map[string]bool{}
		for i, d := range v.Devices {
			for _, text := range []string{d.ID, d.Parent, d.Model, v.Columns[i].Labels[0].Value} {
				testkit.ErrorIf(t, !utf8.ValidString(text) || len(text) > maxText || strings.ContainsAny(text, "\x00\x1b\u202e"), "text %q", text)
			}
			testkit.ErrorIf(t, d.ID == "" || seen[d.ID], "device id %q", d.ID)
			seen[d.ID] = true
		}
	})
}
