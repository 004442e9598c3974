package sysfs

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/collectors/rocm/internal/gpumetrics"
	"warpgauge/collectors/rocm/internal/raw"
	"warpgauge/collectors/rocm/rocmtest"
)

// What is read is what the tree says, for every kind of board and while it moves.
func TestReadMI250X(t *testing.T) {
	f := open(t, rocmtest.Options{GPUs: 2, Deferred: true}, 0)
	g := f.tree.GPUs[0]
	for range 5 {
		f.tree.Step(t, 1300*time.Millisecond)
		g.Update(t, func(s *rocmtest.State) { s.Correctable++; s.Deferred += 2; s.Uncorrectable += 3; s.Replays += 4 })
		f.read()
		f.common(g)
		f.want(raw.Temperature, raw.SensorEdge, float64(g.State.EdgeC))
		f.want(raw.PowerAverage, 0, float64(g.State.Watts))
		f.want(raw.PowerInput, 0, nan)
		f.want(raw.MemoryBusy, 0, float64(g.State.MemUtil))
		f.want(raw.Correctable, raw.BlockUMC, float64(g.State.Correctable))
		f.want(raw.Uncorrectable, raw.BlockUMC, float64(g.State.Uncorrectable))
		f.want(raw.Deferred, raw.BlockUMC, float64(g.State.Deferred))
	}
	f.want(raw.Correctable, raw.BlockSDMA, 0)
	f.want(raw.Deferred, raw.BlockSDMA, nan)
	f.want(raw.Correctable, raw.BlockMPIO, nan)
	f.want(raw.TemperatureCrit, raw.SensorMemory, 100)
	f.want(raw.TemperatureStop, raw.SensorJunction, 105)
	f.want(raw.PowerCap, 0, 560)
	f.want(raw.PowerCapMin, 0, 0)
	f.want(raw.PowerCapMax, 0, 560)
	f.want(raw.PowerCapDefault, 0, 560)
	f.want(raw.FanRPM, 0, nan)
	f.want(raw.FanDuty, 0, nan)
	f.want(raw.LinkSpeed, 0, 16)
	f.want(raw.LinkWidth, 0, 16)
	f.want(raw.LinkSpeedMax, 0, 16)
	f.want(raw.LinkWidthMax, 0, 16)
	f.want(raw.BadPages, raw.PageRetired, 1)
	f.want(raw.BadPages, raw.PagePending, 1)
	f.want(raw.BadPages, raw.PageFailed, 0)
	f.want(raw.InstanceTotal, 0, 68702699520)
	f.want(raw.ClockMax, raw.ClockGraphics, 1700)
	f.want(raw.ClockMax, raw.ClockVideo, 1200)
	sent, received, err := f.h.Bus()
	if err != nil || !f.h.HasBus() || sent != float64(g.State.PCIeSent*256) || received != float64(g.State.PCIeReceived*256) {
		t.Errorf("Bus = %v, %v, %v", sent, received, err)
	}
	for _, k := range []raw.Kind{raw.Processes, raw.ProcessMemory, raw.ProcessUnits} {
		f.want(k, 0, 0)
		f.want(k, raw.Whole, 0)
	}
}

// The power of a package of two dies is told once: the second die says 0.
func TestSecondDie(t *testing.T) {
	f := open(t, rocmtest.Options{GPUs: 2}, 1)
	f.read()
	f.common(f.tree.GPUs[1])
	f.want(raw.PowerAverage, 0, nan)
}

func TestReadMI300X(t *testing.T) {
	f := open(t, rocmtest.Options{Model: rocmtest.MI300X, GPUs: 2, Partition: "CPX"}, 1)
	g := f.tree.GPUs[1]
	f.tree.Start(t, rocmtest.Process{PID: 100, Uses: []rocmtest.Use{{GPU: 1, Instance: 2, VRAM: 1 << 30, CUs: 20}, {GPU: 1, Instance: 3, VRAM: 1 << 20, CUs: 3}}})
	f.tree.Start(t, rocmtest.Process{PID: 200, Uses: []rocmtest.Use{{GPU: 1, Instance: 2, VRAM: 4096}, {GPU: 0, VRAM: 1 << 40, CUs: 38}}})
	f.tree.Start(t, rocmtest.Process{PID: 300})
	f.read()
	f.common(g)
	f.want(raw.Temperature, raw.SensorEdge, nan)
	f.want(raw.Temperature, raw.SensorJunction, float64(g.State.JunctionC))
	f.want(raw.PowerInput, 0, float64(g.State.Watts))
	f.want(raw.PowerAverage, 0, nan)
	f.want(raw.MemoryTotal, raw.MemoryVRAM, 206141652992)
	f.want(raw.InstanceTotal, 7, 206141652992/8)
	for _, v := range []struct {
		kind                        raw.Kind
		first, third, fourth, whole float64
	}{
		{raw.Processes, 0, 2, 1, 2},
		{raw.ProcessMemory, 0, 1<<30 + 4096, 1 << 20, 1<<30 + 4096 + 1<<20},
		{raw.ProcessUnits, 0, 20, 3, 23},
	} {
		f.want(v.kind, 0, v.first)
		f.want(v.kind, 2, v.third)
		f.want(v.kind, 3, v.fourth)
		f.want(v.kind, raw.Whole, v.whole)
	}
	if _, _, err := f.h.Bus(); f.h.HasBus() || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Bus = %v", err)
	}
	f.tree.End(t, 100)
	f.tree.End(t, 200)
	f.read()
	f.want(raw.Processes, raw.Whole, 2) // what was found holds for a second
	f.later()
	f.want(raw.Processes, raw.Whole, 0)
}

func TestReadRadeonAndAPU(t *testing.T) {
	f := open(t, rocmtest.Options{Model: rocmtest.RX7900, GPUs: 1}, 0)
	f.read()
	s := &f.tree.GPUs[0].State
	f.common(f.tree.GPUs[0])
	f.want(raw.FanRPM, 0, float64(s.FanRPM))
	f.want(raw.FanDuty, 0, float64(s.FanPWM)/255)
	f.want(raw.Correctable, raw.BlockUMC, nan)
	f.want(raw.BadPages, raw.PageRetired, nan)
	f.want(raw.Temperature, raw.SensorEdge, float64(s.EdgeC))

	f = open(t, rocmtest.Options{Model: rocmtest.APU, GPUs: 1, NoKFD: true}, 0)
	f.read()
	f.common(f.tree.GPUs[0])
	f.want(raw.MemoryBusy, 0, nan)
	f.want(raw.Temperature, raw.SensorJunction, nan)
	f.want(raw.Processes, raw.Whole, nan)
	f.want(raw.InstanceTotal, 0, nan)
}

// Has says what there could be: a file that is there but broken is.
func TestHas(t *testing.T) {
	f := open(t, rocmtest.Options{GPUs: 1}, 0)
	g := f.tree.GPUs[0]
	g.Set(t, "gpu_busy_percent", "")
	g.Set(t, "ras/umc_err_count", rocmtest.Inaccessible)
	has := f.h.Has()
	for _, w := range []struct {
		kind  raw.Kind
		index uint8
		want  bool
	}{
		{raw.Busy, 0, true}, {raw.PowerAverage, 0, true}, {raw.PowerInput, 0, false}, {raw.FanRPM, 0, false},
		{raw.Correctable, raw.BlockUMC, true}, {raw.Deferred, raw.BlockUMC, true}, {raw.Correctable, raw.BlockVCN, false},
		{raw.BadPages, raw.PageFailed, true}, {raw.Temperature, raw.SensorEdge, true}, {raw.Processes, raw.Whole, true},
		{raw.InstanceTotal, 0, true}, {raw.Clock, raw.ClockGraphics, true},
	} {
		if got := has[f.at(w.kind, w.index)]; got != w.want {
			t.Errorf("Has of %d[%d] = %t", w.kind, w.index, got)
		}
	}
	g.Vanish(t)
	f.clock.t = f.clock.t.Add(time.Minute)
	for i, has := range f.h.Has() {
		if has {
			t.Errorf("a gpu that is gone has %v", f.wanted[i])
		}
	}
}

// Cells that are not due stay; those that raw does not know are blank.
func TestNotDue(t *testing.T) {
	f := open(t, rocmtest.Options{GPUs: 1}, 0)
	for i := range f.values {
		f.values[i], f.due[i] = 4711, f.wanted[i].Kind == raw.Busy
	}
	f.read()
	f.want(raw.Busy, 0, float64(f.tree.GPUs[0].State.Util))
	for i, v := range f.values {
		if f.wanted[i].Kind != raw.Busy && v != 4711 {
			t.Errorf("%v was changed to %v", f.wanted[i], v)
		}
	}
	r := New(Options{Root: f.tree.Root})
	gpus, _, err := r.Find(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	odd := []raw.Reading{{Kind: raw.Temperature, Index: 200}, {Kind: raw.Clock, Index: 200}, {Kind: raw.Kinds}, {Kind: raw.Correctable, Index: raw.Blocks},
		{Kind: raw.BadPages, Index: 9}, {Kind: raw.Processes, Index: 7}, {Kind: raw.InstanceTotal, Index: 1}, {Kind: raw.MemoryUsed, Index: 3}}
	h, err := r.Open(context.Background(), &gpus[0], odd)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	values, due := make([]float64, len(odd)), make([]bool, len(odd))
	for i := range due {
		due[i] = true
	}
	if err := h.Read(values, due); err != nil {
		t.Fatal(err)
	}
	for i, v := range values {
		if !math.IsNaN(v) || h.Has()[i] {
			t.Errorf("%v = %v", odd[i], v)
		}
	}
}

func TestMetrics(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	f := openLogged(t, rocmtest.Options{GPUs: 1}, 0, zap.New(core))
	g, m := f.tree.GPUs[0], new(gpumetrics.Metrics)
	for range 3 {
		f.tree.Step(t, time.Second)
		if err := f.h.Metrics(m); err != nil {
			t.Fatal(err)
		}
		if got := m.Raw(gpumetrics.EnergyAccumulator, 0); got != g.State.Energy {
			t.Errorf("energy %d, want %d", got, g.State.Energy)
		}
	}
	file, err := os.ReadFile(g.Path("gpu_metrics"))
	if err != nil {
		t.Fatal(err)
	}
	refuse := func(text string, want error) {
		t.Helper()
		g.Set(t, "gpu_metrics", text)
		for range 3 {
			if err := f.h.Metrics(m); !errors.Is(err, want) || m.Has(gpumetrics.EnergyAccumulator) {
				t.Fatalf("Metrics = %v, want %v", err, want)
			}
		}
	}
	refuse("", ErrEmpty)
	refuse(string(file[:50]), gpumetrics.ErrShort)
	refuse(rocmtest.Inaccessible, gpumetrics.ErrShort)
	if logs.Len() != 0 {
		t.Errorf("logged: %v", logs.All())
	}
	newer := append([]byte(nil), file...)
	newer[3] = 9
	refuse(string(newer), gpumetrics.ErrRevision)
	newer[2] = 7
	refuse(string(newer), gpumetrics.ErrRevision)
	if logs.Len() != 2 || !strings.Contains(logs.All()[0].ContextMap()["error"].(string), "revision 1.9") {
		t.Errorf("logged: %v", logs.All())
	}
	g.Reset(t, "gpu_metrics")
	if err := f.h.Metrics(m); err != nil {
		t.Fatal(err)
	}
	g.Remove(t, "gpu_metrics")
	_ = f.h.Metrics(m)
	if err := f.h.Metrics(m); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without the file: %v", err)
	}
}
