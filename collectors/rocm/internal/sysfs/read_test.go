package sysfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/collectors/rocm/internal/gpumetrics"
	"warpgauge/collectors/rocm/rocmtest"
	"warpgauge/internal/testkit"
)

// TestReadMI250X checks that the values equal the tree's while they change.
func TestReadMI250X(t *testing.T) {
	f := open(t, rocmtest.Options{GPUs: 2, Deferred: true}, 0)
	g := f.tree.GPUs[0]
	for range 5 {
		f.tree.Step(t, 1300*time.Millisecond)
		g.Update(t, func(s *rocmtest.State) { s.Correctable++; s.Deferred += 2; s.Uncorrectable += 3; s.Replays += 4 })
		f.read()
		f.common(g)
		f.want(Temperature, SensorEdge, float64(g.State.EdgeC))
		f.want(PowerAverage, 0, float64(g.State.Watts))
		f.want(PowerInput, 0, nan)
		f.want(MemoryBusy, 0, float64(g.State.MemUtil))
		f.want(Correctable, block("umc"), float64(g.State.Correctable))
		f.want(Uncorrectable, block("umc"), float64(g.State.Uncorrectable))
		f.want(Deferred, block("umc"), float64(g.State.Deferred))
	}
	f.want(Correctable, block("sdma"), 0)
	f.want(Deferred, block("sdma"), nan)
	f.want(Correctable, block("mpio"), nan)
	f.want(TemperatureCrit, SensorMemory, 100)
	f.want(TemperatureStop, SensorJunction, 105)
	f.want(PowerCap, 0, 560)
	f.want(PowerCapMin, 0, 0)
	f.want(PowerCapMax, 0, 560)
	f.want(PowerCapDefault, 0, 560)
	f.want(FanRPM, 0, nan)
	f.want(FanDuty, 0, nan)
	f.want(LinkSpeed, 0, 16)
	f.want(LinkWidth, 0, 16)
	f.want(LinkSpeedMax, 0, 16)
	f.want(LinkWidthMax, 0, 16)
	f.want(BadPages, PageRetired, 1)
	f.want(BadPages, PagePending, 1)
	f.want(BadPages, PageFailed, 0)
	f.want(ClockMax, ClockGraphics, 1700)
	f.want(ClockMax, ClockVideo, 1200)
	f.want(ClockMin, ClockGraphics, 500)
	f.want(ClockMin, ClockVideo, 29)
	sent, received, err := f.h.Bus()
	if err != nil || !f.h.HasBus() || sent != float64(g.State.PCIeSent*256) || received != float64(g.State.PCIeReceived*256) {
		t.Errorf("Bus = %v, %v, %v", sent, received, err)
	}
}

func TestReadMI300X(t *testing.T) {
	f := open(t, rocmtest.Options{Model: rocmtest.MI300X, GPUs: 2, Partition: "CPX"}, 1)
	g := f.tree.GPUs[1]
	f.read()
	f.common(g)
	f.want(Temperature, SensorEdge, nan)
	f.want(Temperature, SensorJunction, float64(g.State.JunctionC))
	f.want(PowerInput, 0, float64(g.State.Watts))
	f.want(PowerAverage, 0, nan)
	f.want(MemoryTotal, MemoryVRAM, 206141652992)
	_, _, err := f.h.Bus()
	testkit.ErrorIf(t, f.h.HasBus() || !errors.Is(err, fs.ErrNotExist), "Bus = %v", err)
}

func TestReadRadeonAndAPU(t *testing.T) {
	f := open(t, rocmtest.Options{Model: rocmtest.RX7900, GPUs: 1}, 0)
	f.read()
	s := &f.tree.GPUs[0].State
	f.common(f.tree.GPUs[0])
	f.want(FanRPM, 0, float64(s.FanRPM))
	f.want(FanDuty, 0, float64(s.FanPWM)/255)
	f.want(Correctable, block("umc"), nan)
	f.want(BadPages, PageRetired, nan)
	f.want(Temperature, SensorEdge, float64(s.EdgeC))

	f = open(t, rocmtest.Options{Model: rocmtest.APU, GPUs: 1, NoKFD: true}, 0)
	f.read()
	f.common(f.tree.GPUs[0])
	f.want(MemoryBusy, 0, nan)
	f.want(Temperature, SensorJunction, nan)
}

// TestHas checks that Has is true for a file that exists but is broken.
func TestHas(t *testing.T) {
	f := open(t, rocmtest.Options{GPUs: 1}, 0)
	g := f.tree.GPUs[0]
	g.Set(t, "gpu_busy_percent", "")
	g.Set(t, "ras/umc_err_count", rocmtest.Inaccessible)
	has, _ := f.h.Probe()
	for _, w := range []struct {
		kind  Kind
		index uint8
		want  bool
	}{
		{Busy, 0, true}, {PowerAverage, 0, true}, {PowerInput, 0, false}, {FanRPM, 0, false},
		{Correctable, block("umc"), true}, {Deferred, block("umc"), true}, {Correctable, block("vcn"), false},
		{BadPages, PageFailed, true}, {Temperature, SensorEdge, true},
		{Clock, ClockGraphics, true},
	} {
		testkit.Equal(t, fmt.Sprintf("Has of %d[%d]", w.kind, w.index), w.want, has[f.at(w.kind, w.index)])
	}
	g.Vanish(t)
	f.clock.t = f.clock.t.Add(time.Minute)
	has, _ = f.h.Probe()
	for i := range has {
		testkit.ErrorIf(t, has[i], "a gpu that is gone has %v", f.wanted[i])
	}
}

// TestNotDue checks that cells that are not due stay, and that unknown readings are blank.
func TestNotDue(t *testing.T) {
	f := open(t, rocmtest.Options{GPUs: 1}, 0)
	for i := range f.values {
		f.values[i], f.due[i] = 4711, f.wanted[i].Kind == Busy
	}
	f.read()
	f.want(Busy, 0, float64(f.tree.GPUs[0].State.Util))
	for i, v := range f.values {
		testkit.ErrorIf(t, f.wanted[i].Kind != Busy && v != 4711, "%v was changed to %v", f.wanted[i], v)
	}
	r := New(Options{Root: f.tree.Root})
	found, err := r.Find(context.Background())
	gpus := found.GPUs
	must(t, err)
	odd := []Reading{{Kind: Temperature, Index: 200}, {Kind: Clock, Index: 200}, {Kind: Kinds}, {Kind: Correctable, Index: Blocks},
		{Kind: BadPages, Index: 9}, {Kind: MemoryUsed, Index: 3}}
	h := r.Open(&gpus[0], odd)
	defer h.Close()
	values, due := make([]float64, len(odd)), slices.Repeat([]bool{true}, len(odd))
	must(t, h.Read(values, due))
	has, _ := h.Probe()
	for i, v := range values {
		testkit.ErrorIf(t, !math.IsNaN(v) || has[i], "%v = %v", odd[i], v)
	}
}

func TestMetrics(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	f := openLogged(t, rocmtest.Options{GPUs: 1}, 0, zap.New(core))
	g, m := f.tree.GPUs[0], new(gpumetrics.Metrics)
	for range 3 {
		f.tree.Step(t, time.Second)
		must(t, f.h.Metrics(m))
		testkit.Equal(t, "energy", g.State.Energy, m.Raw(gpumetrics.EnergyByASIC, 0))
	}
	file := testkit.Get(os.ReadFile(g.Path("gpu_metrics")))(t)
	refuse := func(text string, want error) {
		t.Helper()
		g.Set(t, "gpu_metrics", text)
		for range 3 {
			err := f.h.Metrics(m)
			testkit.FatalIf(t, !errors.Is(err, want) || m.Has(gpumetrics.EnergyByASIC), "Metrics = %v, want %v", err, want)
		}
	}
	refuse("", gpumetrics.ErrShort)
	refuse(string(file[:50]), gpumetrics.ErrShort)
	refuse(rocmtest.Inaccessible, gpumetrics.ErrShort)
	testkit.Equal(t, "lines logged", 0, logs.Len())
	newer := append([]byte(nil), file...)
	newer[3] = 10
	refuse(string(newer), gpumetrics.ErrRevision)
	newer[2] = 7
	refuse(string(newer), gpumetrics.ErrRevision)
	testkit.ErrorIf(t, logs.Len() != 2 || !strings.Contains(logs.All()[0].ContextMap()["error"].(string), "revision 1.10"), "logged: %v", logs.All())
	g.Reset(t, "gpu_metrics")
	must(t, f.h.Metrics(m))
	g.Remove(t, "gpu_metrics")
	_ = f.h.Metrics(m)
	err := f.h.Metrics(m)
	testkit.ErrorIf(t, !errors.Is(err, fs.ErrNotExist), "without the file: %v", err)
}

// block returns the index of a RAS block.
func block(name string) uint8 { return uint8(slices.Index(blockNames[:], name)) }

func TestReadAllocatesNothing(t *testing.T) {
	for _, o := range []rocmtest.Options{{GPUs: 1, Deferred: true}, {Model: rocmtest.RX7900, GPUs: 1}} {
		f := open(t, o, 0)
		f.tree.GPUs[0].Set(t, "ras/sdma_err_count", rocmtest.Inaccessible)
		f.tree.GPUs[0].Set(t, "mem_busy_percent", "")
		m := new(gpumetrics.Metrics)
		tick := func() {
			if f.h.Suspended() || f.h.Metrics(m) != nil || f.h.Read(f.values, f.due) != nil {
				panic("not read")
			}
		}
		tick()
		n := testing.AllocsPerRun(100, tick)
		testkit.ErrorIf(t, n != 0, "%v allocations in a tick", n)
	}
}

// TestProcesses checks the sums of a GPU and its instances, also if the driver hides the compute units of a process. A process
// with only a queue counts.
func TestProcesses(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI300X, GPUs: 2, Partition: "CPX"})
	tree.Start(t, rocmtest.Process{PID: 100, Uses: []rocmtest.Use{{GPU: 1, Instance: 2, VRAM: 1 << 30, CUs: 20}, {GPU: 1, Instance: 3, VRAM: 1 << 20, CUs: 3}}})
	tree.Start(t, rocmtest.Process{PID: 200, Uses: []rocmtest.Use{{GPU: 1, Instance: 2, VRAM: 4096}, {GPU: 0, VRAM: 1 << 40, CUs: 38}}})
	tree.Start(t, rocmtest.Process{PID: 300})
	l := New(Options{Root: tree.Root}).Processes(&find(t, tree)[1])
	f := func(instance int, want ...float64) {
		t.Helper()
		must(t, l.Scan(true))
		for i, v := range l.Usage(instance) {
			testkit.ErrorIf(t, !same(v, want[i]), "instance %d: %v, want %v", instance, l.Usage(instance), want)
		}
	}
	f(0, 0, 0, 0)
	f(2, 2, 1<<30+4096, 20)
	f(3, 1, 1<<20, 3)
	f(-1, 2, 1<<30+4096+1<<20, 23)
	id := strconv.FormatUint(tree.GPUs[1].Instances[3].KFD, 10)
	dir := filepath.Join(tree.Path(processDir), "100")
	must(t, os.RemoveAll(filepath.Join(dir, "stats_"+id)))
	f(3, 1, 1<<20, nan)
	must(t, os.WriteFile(filepath.Join(dir, "vram_"+id), []byte("0\n"), 0o644))
	f(3, 1, 0, nan)
	must(t, os.RemoveAll(filepath.Join(dir, "queues")))
	f(3, 0, 0, 0)
	tree.End(t, 100)
	tree.End(t, 200)
	f(-1, 0, 0, 0)
}

func BenchmarkTick(b *testing.B) {
	tree := rocmtest.NewTree(b, rocmtest.Options{Model: rocmtest.MI300X, GPUs: 1})
	wanted := everything()
	h := New(Options{Root: tree.Root}).Open(&find(b, tree)[0], wanted)
	defer h.Close()
	values, due, m := make([]float64, len(wanted)), make([]bool, len(wanted)), new(gpumetrics.Metrics)
	has, _ := h.Probe()
	for i, w := range wanted {
		due[i] = has[i] && w.Kind < Correctable && w.Kind != TemperatureCrit && w.Kind != TemperatureStop
	}
	b.ReportAllocs()
	for b.Loop() {
		testkit.Must(b, errors.Join(h.Metrics(m), h.Read(values, due)))
	}
}
