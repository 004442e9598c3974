package rocm

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"warpgauge/collectors/rocm/rocmtest"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/collector/collectortest"
	"warpgauge/pkg/field"
)

var must = testkit.Must

func TestConformance(t *testing.T) {
	for name, o := range map[string]rocmtest.Options{
		"MI250X":             {Model: rocmtest.MI250X},
		"MI300X partitioned": {Model: rocmtest.MI300X, Partition: "DPX", Memory: "NPS4", Metrics: "1.9"},
		"Radeon":             {Model: rocmtest.RX7900},
		"APU":                {Model: rocmtest.APU, GPUs: 1},
	} {
		t.Run(name, func(t *testing.T) {
			collectortest.Run(t, collectortest.Harness{Name: "rocm", New: func(tb testing.TB) collectortest.Rig {
				tb.Helper()
				return rig(tb, o, Options{Source: SourceSysfs})
			}})
		})
	}
}

// rig returns a tree whose faults the suite injects.
func rig(tb testing.TB, of rocmtest.Options, o Options) collectortest.Rig {
	tb.Helper()
	return rigOn(tb, rocmtest.NewTree(tb, of), of, o)
}

func rigOn(tb testing.TB, tree *rocmtest.Tree, of rocmtest.Options, o Options) collectortest.Rig {
	tb.Helper()
	o.Root = tree.Root
	board := func(id string) *rocmtest.GPU {
		for _, g := range tree.GPUs {
			if id == uuidOf(g) || id == "GPU-"+g.PCI {
				return g
			}
		}
		tb.Fatalf("no GPU %q", id)
		return nil
	}
	r := collectortest.Rig{
		Factory:       func() collector.Collector { return New(o) },
		LoseDevice:    func(id string) { board(id).Vanish(tb) },
		RestoreDevice: func(id string) { board(id).Return(tb) },
		Hang:          func(id string) func() { return hang(tb, board(id)) },
		FailOpen: func() func() {
			away := tree.Sys() + ".away"
			must(tb, os.Rename(tree.Sys(), away))
			return func() {
				must(tb, os.Rename(away, tree.Sys()))
			}
		},
	}
	if len(tree.GPUs) < 2 {
		r.LoseDevice = nil // no GPU would remain
	}
	if of.Model != rocmtest.APU {
		r.ChangeColumns = func() { tree.GPUs[0].Set(tb, "unique_id", "00000000deadbeef\n") }
	}
	return r
}

// hang replaces a file with a pipe that has no writer.
func hang(tb testing.TB, g *rocmtest.GPU) (release func()) {
	tb.Helper()
	const key = "hwmon/power1_cap"
	pipe := g.FIFO(tb, key)
	return func() {
		pipe.Close()
		g.Reset(tb, key)
	}
}

func uuidOf(g *rocmtest.GPU) string {
	const digits = "0123456789abcdef"
	out := []byte("GPU-0000000000000000")
	for i, v := len(out)-1, g.UniqueID; v != 0; i, v = i-1, v>>4 {
		out[i] = digits[v&15]
	}
	return string(out)
}

func TestOpenSaysWhatThereIs(t *testing.T) {
	f := func(dirs, vendor string, sentinel error, want string) {
		t.Helper()
		root := t.TempDir()
		for _, dir := range strings.Fields(dirs) {
			must(t, os.MkdirAll(filepath.Join(root, "sys", dir), 0o750))
		}
		if vendor != "" {
			must(t, os.WriteFile(filepath.Join(root, "sys/class/drm/card1/device/vendor"), []byte(vendor), 0o600))
		}
		c := New(Options{Root: root})
		sources, err := c.Open(t.Context(), field.List{})
		testkit.FatalIf(t, len(sources) != 0 || !errors.Is(err, sentinel), "Open = %v, %v, want no source and %v", sources, err, sentinel)
		testkit.Equal(t, "error", want, strings.ReplaceAll(err.Error(), root, ""))
		for range 2 {
			err := c.Close()
			testkit.ErrorIf(t, err != nil, "Close: %v", err)
		}
	}
	const card = "module/amdgpu class/drm/card1/device"
	f("", "", collector.ErrNotLoaded, "look for AMD GPUs: library or driver not found: no amdgpu driver (neither /sys/class/kfd/kfd/topology nor /sys/module/amdgpu); on a node with AMD GPUs load the driver (modprobe amdgpu)")
	f(card, "0x10de", collector.ErrNotLoaded, "look for AMD GPUs: library or driver not found: amdgpu driver in /sys/module/amdgpu but neither /sys/class/kfd/kfd/topology nor an AMD card in /sys/class/drm; on a node with AMD GPUs load the driver (modprobe amdgpu)")
	f(card, "0x1002", collector.ErrNoDevices, "look for AMD GPUs: no device found: amdgpu driver with cards in /sys/class/drm but no /sys/class/kfd/kfd/topology, but no card in /sys/class/drm that amdgpu serves")
	f("class/kfd/kfd/topology", "", collector.ErrNoDevices, "look for AMD GPUs: no device found: amdgpu driver with /sys/class/kfd/kfd/topology, but no card in /sys/class/drm that amdgpu serves")
}

// opened is an open collector, with helpers that read its values by name.
type opened struct {
	*Collector
	t       *testing.T
	fields  field.List
	sources []collector.Source
	rows    [][]float64
}

func list(t *testing.T, csv ...string) field.List {
	t.Helper()
	l, problems, err := field.Parse(strings.NewReader(strings.Join(csv, "\n")+"\n"), field.ParseOptions{File: "test.csv", Strict: true})
	if err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	return l
}

func mustOpen(t *testing.T, o Options, fields field.List) *opened {
	t.Helper()
	c := New(o)
	sources := testkit.Get(c.Open(t.Context(), fields))(t)
	t.Cleanup(func() {
		must(t, c.Close())
	})
	out := &opened{Collector: c, t: t, fields: fields, sources: sources}
	for _, s := range sources {
		row := slices.Repeat([]float64{math.NaN()}, len(s.Columns()))
		out.rows = append(out.rows, row)
	}
	return out
}

// sample samples all columns of every source.
func (o *opened) sample() {
	o.t.Helper()
	for i, s := range o.sources {
		err := s.Sample(o.rows[i], slices.Repeat([]bool{true}, len(o.rows[i])))
		testkit.FatalIf(o.t, err != nil, "source %d: %v", i, err)
	}
}

// value returns the value of a device's field. labels has the form "name=value,…". ok is false without such a column.
func (o *opened) value(device, name, labels string) (v float64, ok bool) {
	o.t.Helper()
	d, _, known := field.ByName(name)
	testkit.FatalIf(o.t, !known, "no field %q", name)
	for i, s := range o.sources {
		for j, c := range s.Columns() {
			if c.Field == d.ID && s.Devices()[c.Device].ID == device && text(c.Labels) == labels {
				return o.rows[i][j], true
			}
		}
	}
	return math.NaN(), false
}

func text(labels []collector.Label) string {
	var parts []string
	for _, l := range labels {
		parts = append(parts, l.Name+"="+l.Value)
	}
	return strings.Join(parts, ",")
}

func TestRescan(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI300X})
	o := mustOpen(t, Options{Root: tree.Root, Source: SourceSysfs}, collectortest.Fields())
	f := func(want bool) {
		t.Helper()
		changed, err := o.Rescan(context.Background())
		testkit.ErrorIf(t, changed != want || err != nil, "Rescan = %v, %v, want %v", changed, err, want)
	}
	f(false)
	testkit.ErrorIf(t, !Present(tree.Root) || Present(t.TempDir()), "Present does not tell a node with GPUs from one without")
	tree.GPUs[1].Vanish(t)
	f(true)
	tree.GPUs[1].Return(t)
	f(false)
	tree.GPUs[0].Set(t, "current_compute_partition", "DPX\n")
	f(true)
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b := testkit.Get(os.ReadFile(path))(t)
	return string(b)
}
