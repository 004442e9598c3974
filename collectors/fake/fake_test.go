package fake

import (
	"context"
	"math"
	"testing"
	"time"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/collector/collectortest"
	"warpgauge/pkg/field"
)

func TestConformance(t *testing.T) {
	for _, name := range Profiles() {
		t.Run(name, func(t *testing.T) {
			collectortest.Run(t, collectortest.Harness{Name: "fake", New: func(tb testing.TB) collectortest.Rig {
				tb.Helper()
				return rig(tb, Options{Profile: name, Devices: 2})
			}})
		})
	}
}

// rig returns a world whose faults the suite injects.
func rig(tb testing.TB, o Options) collectortest.Rig {
	tb.Helper()
	w := newWorld(tb, o)
	board := func(id string) Spans {
		for i := range w.gpus {
			if gpuDevice(w, i).ID == id {
				return index(i)
			}
		}
		tb.Fatalf("no board %q", id)
		return nil
	}
	lost := map[string]func(){}
	return collectortest.Rig{
		Factory:       w.Collector,
		LoseDevice:    func(id string) { lost[id] = inject(tb, w, Fault{Kind: Lost, GPUs: board(id)}) },
		RestoreDevice: func(id string) { lost[id]() },
		Hang:          func(id string) func() { return inject(tb, w, Fault{Kind: Hang, GPUs: board(id)}) },
		ChangeColumns: func() { inject(tb, w, Fault{Kind: Devices, Count: w.gpus - 1}) },
		FailOpen:      func() func() { return inject(tb, w, Fault{Kind: OpenFails}) },
		RaiseEvent: func(id string, _ field.ID, v float64) {
			inject(tb, w, Fault{Kind: XID, GPUs: board(id), XID: int(v)})
		},
	}
}

func newWorld(tb testing.TB, o Options) *World {
	tb.Helper()
	w := testkit.Get(NewWorld(o))(tb)
	tb.Cleanup(w.Release)
	return w
}

func inject(tb testing.TB, w *World, f Fault) (heal func()) {
	tb.Helper()
	heal = testkit.Get(w.Inject(f))(tb)
	return heal
}

// fixedClock is a clock that a test sets.
type fixedClock struct{ t time.Time }

func newClock() *fixedClock {
	return &fixedClock{time.Date(2026, time.March, 14, 15, 9, 26, 535897932, time.UTC)}
}

func (c *fixedClock) now() time.Time          { return c.t }
func (c *fixedClock) advance(d time.Duration) { c.t = c.t.Add(d) }

const temperature = "DCGM_FI_DEV_GPU_TEMP"

// node is an open collector with helpers that read one device or field.
type node struct {
	tb        testing.TB
	world     *World
	collector *Collector
	sources   []collector.Source
}

func openNode(tb testing.TB, w *World, l field.List) *node {
	tb.Helper()
	c := w.Collector().(*Collector)
	sources := testkit.Get(c.Open(context.Background(), l))(tb)
	tb.Cleanup(func() { _ = c.Close() })
	return &node{tb, w, c, sources}
}

// read samples a source and returns the cells of one of its devices by field, without the columns that have labels.
func (n *node) read(source, device int) map[field.ID]float64 {
	n.tb.Helper()
	s := n.sources[source]
	row, err := sampleRow(s)
	testkit.FatalIf(n.tb, err != nil, "sample source %d: %v", source, err)
	out := map[field.ID]float64{}
	for i, c := range s.Columns() {
		if c.Device == device && c.Labels == nil {
			out[c.Field] = row[i]
		}
	}
	return out
}

func sampleRow(s collector.Source) ([]float64, error) {
	row, due := make([]float64, len(s.Columns())), make([]bool, len(s.Columns()))
	for i := range row {
		row[i], due[i] = math.NaN(), true
	}
	return row, s.Sample(row, due)
}
