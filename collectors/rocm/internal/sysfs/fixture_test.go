package sysfs

import (
	"context"
	"math"
	"testing"
	"time"

	"go.uber.org/zap"

	"warpgauge/collectors/rocm/rocmtest"
	"warpgauge/internal/testkit"
)

var must = testkit.Must

// testClock is the time of a test.
type testClock struct{ t time.Time }

func (c *testClock) now() time.Time { return c.t }

type fixture struct {
	*testing.T
	tree   *rocmtest.Tree
	clock  *testClock
	h      *Handle
	wanted []Reading
	values []float64
	due    []bool
}

// everything returns all readings of a board.
func everything() []Reading {
	indices := map[Kind]int{
		Clock: int(Clocks), ClockMax: int(Clocks), ClockMin: int(Clocks),
		Temperature: int(Sensors), TemperatureCrit: int(Sensors), TemperatureStop: int(Sensors),
		MemoryTotal: int(Memories), MemoryUsed: int(Memories),
		Correctable: int(Blocks), Uncorrectable: int(Blocks), Deferred: int(Blocks),
		BadPages: int(Pages),
	}
	var list []Reading
	for k := range Kinds {
		n, ok := indices[k]
		if !ok {
			n = 1
		}
		for i := range n {
			list = append(list, Reading{Kind: k, Index: uint8(i)})
		}
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
	found, err := r.Find(context.Background())
	gpus := found.GPUs
	if err != nil || len(gpus) <= gpu {
		t.Fatal(gpus, err)
	}
	f.wanted = everything()
	h := r.Open(&gpus[gpu], f.wanted)
	f.h = h
	t.Cleanup(func() {
		for range 2 {
			f.h.Close()
		}
	})
	f.values, f.due = make([]float64, len(f.wanted)), make([]bool, len(f.wanted))
	for i := range f.due {
		f.due[i] = true
	}
	return f
}

// read reads all readings and fails on an error.
func (f *fixture) read() {
	f.Helper()
	must(f, f.h.Read(f.values, f.due))
}

func (f *fixture) at(kind Kind, index uint8) int {
	f.Helper()
	for i, w := range f.wanted {
		if w.Kind == kind && w.Index == index {
			return i
		}
	}
	f.Fatalf("no reading %d[%d]", kind, index)
	return 0
}

func (f *fixture) want(kind Kind, index uint8, want float64) {
	f.Helper()
	got := f.values[f.at(kind, index)]
	if math.Abs(got-want) > 1e-9*math.Abs(want) || math.IsNaN(got) != math.IsNaN(want) {
		f.Errorf("reading %d[%d] = %v, want %v", kind, index, got, want)
	}
}

var nan = math.NaN()

// common checks the values that all boards have.
func (f *fixture) common(g *rocmtest.GPU) {
	f.Helper()
	s := &g.State
	f.want(Busy, 0, float64(s.Util))
	f.want(Clock, ClockGraphics, float64(s.SclkMHz))
	f.want(Clock, ClockMemory, float64(s.MclkMHz))
	f.want(Clock, ClockFabric, 1400)
	f.want(Clock, ClockSystem, 1090)
	f.want(Clock, ClockVideo, 29)
	f.want(Clock, ClockDecode, 22)
	f.want(Voltage, 0, float64(s.MilliVolts)/1000)
	f.want(MemoryUsed, MemoryVRAM, float64(s.VRAMUsed))
	f.want(MemoryUsed, MemoryVisible, float64(s.VisVRAMUsed))
	f.want(MemoryUsed, MemoryGTT, float64(s.GTTUsed))
	f.want(Replays, 0, float64(s.Replays))
}
