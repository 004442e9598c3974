package sysfs

import (
	"context"
	"math"
	"testing"
	"time"

	"go.uber.org/zap"

	"warpgauge/collectors/rocm/internal/raw"
	"warpgauge/collectors/rocm/rocmtest"
)

// testClock is the time of a test.
type testClock struct{ t time.Time }

func (c *testClock) now() time.Time { return c.t }

type fixture struct {
	*testing.T
	tree   *rocmtest.Tree
	clock  *testClock
	h      raw.Files
	wanted []raw.Reading
	values []float64
	due    []bool
}

// everything is each reading that raw knows, of a board with some instances.
func everything(instances int) []raw.Reading {
	indices := map[raw.Kind]int{
		raw.Clock: int(raw.Clocks), raw.ClockMax: int(raw.Clocks),
		raw.Temperature: int(raw.Sensors), raw.TemperatureCrit: int(raw.Sensors), raw.TemperatureStop: int(raw.Sensors),
		raw.MemoryTotal: int(raw.Memories), raw.MemoryUsed: int(raw.Memories),
		raw.Correctable: int(raw.Blocks), raw.Uncorrectable: int(raw.Blocks), raw.Deferred: int(raw.Blocks),
		raw.BadPages: int(raw.Pages), raw.InstanceTotal: instances,
		raw.Processes: instances, raw.ProcessMemory: instances, raw.ProcessUnits: instances,
	}
	var list []raw.Reading
	for k := range raw.Kinds {
		n, ok := indices[k]
		if !ok {
			n = 1
		}
		for i := range n {
			list = append(list, raw.Reading{Kind: k, Index: uint8(i)})
		}
	}
	for _, k := range []raw.Kind{raw.Processes, raw.ProcessMemory, raw.ProcessUnits} {
		list = append(list, raw.Reading{Kind: k, Index: raw.Whole})
	}
	return list
}

func open(t *testing.T, o rocmtest.Options, gpu int) *fixture {
	t.Helper()
	return openLogged(t, o, gpu, nil)
}

func openLogged(t *testing.T, o rocmtest.Options, gpu int, log *zap.Logger) *fixture {
	t.Helper()
	f := &fixture{T: t, tree: rocmtest.NewTree(t, o), clock: &testClock{time.Unix(1_800_000_000, 0)}}
	r := New(Options{Root: f.tree.Root, Log: log, Now: f.clock.now})
	gpus, _, err := r.Find(context.Background())
	if err != nil || len(gpus) <= gpu {
		t.Fatal(gpus, err)
	}
	f.wanted = everything(max(1, len(gpus[gpu].Instances)))
	h, err := r.Open(context.Background(), &gpus[gpu], f.wanted)
	if err != nil {
		t.Fatal(err)
	}
	f.h = h.(raw.Files)
	t.Cleanup(func() {
		for range 2 {
			if err := f.h.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	f.values, f.due = make([]float64, len(f.wanted)), make([]bool, len(f.wanted))
	for i := range f.due {
		f.due[i] = true
	}
	return f
}

// read reads all and fails at an error.
func (f *fixture) read() {
	f.Helper()
	if err := f.h.Read(f.values, f.due); err != nil {
		f.Fatal(err)
	}
}

// later reads again when processes are looked for anew.
func (f *fixture) later() {
	f.Helper()
	f.clock.t = f.clock.t.Add(lookAfter)
	f.read()
}

func (f *fixture) at(kind raw.Kind, index uint8) int {
	f.Helper()
	for i, w := range f.wanted {
		if w.Kind == kind && w.Index == index {
			return i
		}
	}
	f.Fatalf("no reading %d[%d]", kind, index)
	return 0
}

func (f *fixture) want(kind raw.Kind, index uint8, want float64) {
	f.Helper()
	got := f.values[f.at(kind, index)]
	if math.Abs(got-want) > 1e-9*math.Abs(want) || math.IsNaN(got) != math.IsNaN(want) {
		f.Errorf("reading %d[%d] = %v, want %v", kind, index, got, want)
	}
}

var nan = math.NaN()

// common is what all boards show.
func (f *fixture) common(g *rocmtest.GPU) {
	f.Helper()
	s := &g.State
	f.want(raw.Busy, 0, float64(s.Util))
	f.want(raw.Clock, raw.ClockGraphics, float64(s.SclkMHz))
	f.want(raw.Clock, raw.ClockMemory, float64(s.MclkMHz))
	f.want(raw.Clock, raw.ClockFabric, 1400)
	f.want(raw.Clock, raw.ClockSystem, 1090)
	f.want(raw.Clock, raw.ClockVideo, 29)
	f.want(raw.Clock, raw.ClockDecode, 22)
	f.want(raw.Voltage, 0, float64(s.MilliVolts)/1000)
	f.want(raw.MemoryUsed, raw.MemoryVRAM, float64(s.VRAMUsed))
	f.want(raw.MemoryUsed, raw.MemoryVisible, float64(s.VisVRAMUsed))
	f.want(raw.MemoryUsed, raw.MemoryGTT, float64(s.GTTUsed))
	f.want(raw.Replays, 0, float64(s.Replays))
}

// perProcess are the readings for which directories are listed; they are due seldom.
func perProcess(w raw.Reading) bool {
	switch w.Kind {
	case raw.Processes, raw.ProcessMemory, raw.ProcessUnits, raw.InstanceTotal:
		return true
	default:
		return false
	}
}
