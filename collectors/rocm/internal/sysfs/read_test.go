package sysfs

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/collectors/rocm/internal/gpumetrics"
	"warpgauge/collectors/rocm/internal/raw"
	"warpgauge/collectors/rocm/rocmtest"
	"warpgauge/pkg/collector"
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

// More processes than a look takes are no number at all, rather than a wrong one.
func TestTooManyProcesses(t *testing.T) {
	f := open(t, rocmtest.Options{GPUs: 1}, 0)
	dir := f.tree.Path(processDir)
	for pid := range maxProcesses + 1 {
		if err := os.Mkdir(filepath.Join(dir, strconv.Itoa(pid+1)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	f.read()
	f.want(raw.Processes, raw.Whole, nan)
	if err := os.Remove(filepath.Join(dir, "1")); err != nil {
		t.Fatal(err)
	}
	f.later()
	f.want(raw.Processes, raw.Whole, 0) // they have ended, but for their directories
}

// A driver that cannot tell the compute units of a process leaves their sum
// unknown, and the rest known. A queue alone makes a process count.
func TestProcessWithoutUnits(t *testing.T) {
	f := open(t, rocmtest.Options{GPUs: 1}, 0)
	f.tree.Start(t, rocmtest.Process{PID: 7, Uses: []rocmtest.Use{{VRAM: 5000, CUs: 9}}})
	id := strconv.FormatUint(f.tree.GPUs[0].Instances[0].KFD, 10)
	dir := filepath.Join(f.tree.Path(processDir), "7")
	if err := os.RemoveAll(filepath.Join(dir, "stats_"+id)); err != nil {
		t.Fatal(err)
	}
	f.read()
	f.want(raw.Processes, 0, 1)
	f.want(raw.ProcessMemory, 0, 5000)
	f.want(raw.ProcessUnits, 0, nan)
	if err := os.WriteFile(filepath.Join(dir, "vram_"+id), []byte("0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	f.later()
	f.want(raw.Processes, 0, 1)
	f.want(raw.ProcessMemory, 0, 0)
	if err := os.RemoveAll(filepath.Join(dir, "queues")); err != nil {
		t.Fatal(err)
	}
	f.later()
	f.want(raw.Processes, 0, 0)
	f.want(raw.ProcessUnits, 0, 0)
}

// A container may have the devices but not the links of their bus.
func TestWithoutBus(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{GPUs: 1})
	if err := os.RemoveAll(tree.Path("bus")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(tree.Path("bus/pci/drivers/amdgpu"), 0o755); err != nil {
		t.Fatal(err)
	}
	r := New(Options{Root: tree.Root})
	gpus, _, err := r.Find(context.Background())
	if err != nil || len(gpus) != 1 {
		t.Fatal(gpus, err)
	}
	h, err := r.Open(context.Background(), &gpus[0], []raw.Reading{{Kind: raw.Voltage}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	v := []float64{nan}
	if err := h.Read(v, []bool{true}); err != nil || !same(v[0], float64(tree.GPUs[0].State.MilliVolts)/1000) {
		t.Errorf("Read = %v, %v", v, err)
	}
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

func TestSuspended(t *testing.T) {
	f := open(t, rocmtest.Options{Model: rocmtest.RX7900, GPUs: 1}, 0)
	g := f.tree.GPUs[0]
	for text, want := range map[string]bool{
		"active\n": false, "suspended\n": true, "suspending\n": true, "resuming\n": false, "unsupported\n": false, "error\n": false, "": false,
	} {
		g.Set(t, "power/runtime_status", text)
		if got := f.h.Suspended(); got != want {
			t.Errorf("Suspended with %q = %t", text, got)
		}
	}
	var asked sync.WaitGroup
	for range 2 { // the schedule of pcie_bw asks beside the source
		asked.Go(func() {
			for range 100 {
				f.h.Suspended()
			}
		})
	}
	f.read()
	asked.Wait()
	g.Remove(t, "power/runtime_status")
	for range 2 {
		if f.h.Suspended() {
			t.Error("Suspended without the file")
		}
	}
}

// Each cell fails alone, and comes back alone.
func TestBrokenFiles(t *testing.T) {
	f := open(t, rocmtest.Options{Model: rocmtest.MI300X, GPUs: 1}, 0)
	g := f.tree.GPUs[0]
	f.read()
	intact := append([]float64(nil), f.values...)
	for _, c := range []struct {
		key     string
		cells   []int
		healthy bool // a text without its line end is whole
	}{
		{"gpu_busy_percent", []int{f.at(raw.Busy, 0)}, true},
		{"mem_info_vram_used", []int{f.at(raw.MemoryUsed, raw.MemoryVRAM)}, true},
		{"hwmon/temp2_input", []int{f.at(raw.Temperature, raw.SensorJunction)}, true},
		{"pp_dpm_sclk", []int{f.at(raw.Clock, raw.ClockGraphics), f.at(raw.ClockMax, raw.ClockGraphics)}, false},
		{"ras/gfx_err_count", []int{f.at(raw.Correctable, raw.BlockGFX), f.at(raw.Uncorrectable, raw.BlockGFX), f.at(raw.Deferred, raw.BlockGFX)}, false},
		{"ras/gpu_vram_bad_pages", []int{f.at(raw.BadPages, 0), f.at(raw.BadPages, 1), f.at(raw.BadPages, 2)}, false},
	} {
		for name, text := range map[string]string{
			"empty": "", "blank": "\n \n", "inaccessible": rocmtest.Inaccessible, "huge": strings.Repeat("7", 40000), "binary": "\x00\xff\x01\n",
		} {
			g.Set(t, c.key, text)
			f.read()
			for i, v := range f.values {
				broken := false
				for _, cell := range c.cells {
					broken = broken || cell == i
				}
				want := intact[i]
				if broken {
					want = nan
				}
				if broken && c.key == "ras/gpu_vram_bad_pages" && (name == "empty" || name == "blank") {
					want = 0 // no page is bad
				}
				if v != want && !(math.IsNaN(v) && math.IsNaN(want)) {
					t.Errorf("%s is %s: %v = %v, want %v", c.key, name, f.wanted[i], v, want)
				}
			}
		}
		g.Reset(t, c.key)
		f.read()
		for _, cell := range c.cells {
			if v := f.values[cell]; v != intact[cell] && !math.IsNaN(intact[cell]) {
				t.Errorf("%s is back: %v = %v, want %v", c.key, f.wanted[cell], v, intact[cell])
			}
		}
	}
}

// A file that is not there yet is found later, though not looked for at once.
func TestAbsentFileComes(t *testing.T) {
	f := open(t, rocmtest.Options{GPUs: 1}, 0)
	f.read()
	f.want(raw.FanRPM, 0, nan)
	f.tree.GPUs[0].Set(t, "hwmon/fan1_input", "1500\n")
	f.read()
	f.want(raw.FanRPM, 0, nan)
	f.clock.t = f.clock.t.Add(absentFor)
	f.read()
	f.want(raw.FanRPM, 0, 1500)
}

func TestVanishAndReturn(t *testing.T) {
	f := open(t, rocmtest.Options{GPUs: 2}, 0)
	g, m := f.tree.GPUs[0], new(gpumetrics.Metrics)
	f.read()
	g.Vanish(t)
	for range 3 {
		if err := f.h.Read(f.values, f.due); !errors.Is(err, collector.ErrDeviceLost) {
			t.Fatalf("Read of a gpu that is gone: %v", err)
		}
		for i, v := range f.values {
			if !math.IsNaN(v) {
				t.Fatalf("%v = %v of a gpu that is gone", f.wanted[i], v)
			}
		}
		if err := f.h.Metrics(m); !errors.Is(err, collector.ErrDeviceLost) || m.Has(gpumetrics.EnergyAccumulator) {
			t.Fatalf("Metrics of a gpu that is gone: %v", err)
		}
		if f.h.Suspended() {
			t.Fatal("what is gone does not sleep")
		}
		f.clock.t = f.clock.t.Add(time.Second)
	}
	g.Return(t)
	f.read()
	f.common(g)
	if err := f.h.Metrics(m); err != nil {
		t.Fatal(err)
	}

	// Metrics finds out alone, too: beside the library nothing else is read.
	f.clock.t = f.clock.t.Add(time.Minute)
	g.Vanish(t)
	if err := f.h.Metrics(m); !errors.Is(err, collector.ErrDeviceLost) {
		t.Fatalf("Metrics of a gpu that is gone: %v", err)
	}
}

// Another board in the same slot has other columns.
func TestReplaced(t *testing.T) {
	f := open(t, rocmtest.Options{GPUs: 1}, 0)
	g := f.tree.GPUs[0]
	f.read()
	g.Vanish(t)
	if err := f.h.Read(f.values, f.due); !errors.Is(err, collector.ErrDeviceLost) {
		t.Fatal(err)
	}
	g.Return(t)
	g.Set(t, "unique_id", "00000000000000aa\n")
	for range 2 {
		if err := f.h.Read(f.values, f.due); !errors.Is(err, collector.ErrColumnsChanged) {
			t.Fatalf("Read of another board: %v", err)
		}
	}
}

// The driver was bound again: hwmon has another number, and the sensors' numbers
// need not be the same.
func TestHwmonMoves(t *testing.T) {
	f := open(t, rocmtest.Options{Model: rocmtest.MI300X, GPUs: 1}, 0)
	g := f.tree.GPUs[0]
	f.read()
	old := filepath.Dir(g.Path("hwmon/name"))
	moved := filepath.Join(filepath.Dir(old), "hwmon99")
	if err := os.MkdirAll(moved, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"name": "amdgpu", "temp1_label": "junction", "temp1_input": "66000", "power1_input": "400000000"} {
		if err := os.WriteFile(filepath.Join(moved, name), []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names(old) {
		if !strings.HasPrefix(name, "device") {
			g.Remove(t, "hwmon/"+name)
		}
	}
	f.clock.t = f.clock.t.Add(time.Minute)
	f.read()
	f.read()
	f.want(raw.Temperature, raw.SensorJunction, 66)
	f.want(raw.Temperature, raw.SensorMemory, nan)
	f.want(raw.PowerInput, 0, 400)
}

// A driver that hangs holds up the goroutine that reads, and ends when it answers.
func TestHang(t *testing.T) {
	f := open(t, rocmtest.Options{GPUs: 2}, 0)
	g := f.tree.GPUs[0]
	pipe := g.FIFO(t, "hwmon/temp2_input")
	done := make(chan error)
	go func() { done <- f.h.Read(f.values, f.due) }()
	pipe.Feed(t, "77000\n")
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	f.want(raw.Temperature, raw.SensorJunction, 77)
	f.common(g)

	go func() { done <- f.h.Read(f.values, f.due) }()
	other := open(t, rocmtest.Options{GPUs: 2}, 1)
	other.read()
	other.common(other.tree.GPUs[1])
	select {
	case err := <-done:
		t.Fatalf("the read did not wait: %v", err)
	default:
	}
	pipe.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	f.want(raw.Temperature, raw.SensorJunction, nan)
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

func TestReadAllocatesNothing(t *testing.T) {
	for _, o := range []rocmtest.Options{{GPUs: 1, Deferred: true}, {Model: rocmtest.RX7900, GPUs: 1}} {
		f := open(t, o, 0)
		f.tree.GPUs[0].Set(t, "ras/sdma_err_count", rocmtest.Inaccessible)
		f.tree.GPUs[0].Set(t, "mem_busy_percent", "")
		m := new(gpumetrics.Metrics)
		for i, w := range f.wanted {
			f.due[i] = !perProcess(w)
		}
		tick := func() {
			if f.h.Suspended() || f.h.Metrics(m) != nil || f.h.Read(f.values, f.due) != nil {
				panic("not read")
			}
		}
		tick()
		if n := testing.AllocsPerRun(100, tick); n != 0 {
			t.Errorf("%v allocations in a tick", n)
		}
	}
}

func BenchmarkTick(b *testing.B) {
	tree := rocmtest.NewTree(b, rocmtest.Options{Model: rocmtest.MI300X, GPUs: 1})
	r := New(Options{Root: tree.Root})
	gpus, _, err := r.Find(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	wanted := everything(1)
	h, err := r.Open(context.Background(), &gpus[0], wanted)
	if err != nil {
		b.Fatal(err)
	}
	defer h.Close()
	values, due, m := make([]float64, len(wanted)), make([]bool, len(wanted)), new(gpumetrics.Metrics)
	has := h.Has()
	cells := 0
	for i, w := range wanted {
		fast := w.Kind < raw.Correctable && w.Kind != raw.TemperatureCrit && w.Kind != raw.TemperatureStop
		due[i] = fast && has[i]
		if due[i] {
			cells++
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := h.(raw.Files).Metrics(m); err != nil {
			b.Fatal(err)
		}
		if err := h.Read(values, due); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(cells), "cells")
}
