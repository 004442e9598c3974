package sysfs

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"warpgauge/collectors/rocm/internal/gpumetrics"
	"warpgauge/collectors/rocm/rocmtest"
	"warpgauge/internal/testkit"
)

// TestWithoutBus checks a container that has the devices, but not the links of their bus.
func TestWithoutBus(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{GPUs: 1})
	must(t, os.RemoveAll(tree.Path("bus")))
	must(t, os.MkdirAll(tree.Path("bus/pci/drivers/amdgpu"), 0o755))
	r := New(Options{Root: tree.Root})
	found, err := r.Find(context.Background())
	gpus := found.GPUs
	if err != nil || len(gpus) != 1 {
		t.Fatal(gpus, err)
	}
	h := r.Open(&gpus[0], []Reading{{Kind: Voltage}})
	defer h.Close()
	v := []float64{nan}
	if err := h.Read(v, []bool{true}); err != nil || !same(v[0], float64(tree.GPUs[0].State.MilliVolts)/1000) {
		t.Errorf("Read = %v, %v", v, err)
	}
}

func TestSuspended(t *testing.T) {
	f := open(t, rocmtest.Options{Model: rocmtest.RX7900, GPUs: 1}, 0)
	g := f.tree.GPUs[0]
	for text, want := range map[string]bool{
		"active\n": false, "suspended\n": true, "suspending\n": true, "resuming\n": false, "unsupported\n": false, "error\n": false, "": false,
	} {
		g.Set(t, "power/runtime_status", text)
		testkit.Equal(t, fmt.Sprintf("Suspended with %q", text), want, f.h.Suspended())
	}
	var asked sync.WaitGroup
	for range 2 { // both pcie_bw's goroutine and the source call it
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
		testkit.ErrorIf(t, f.h.Suspended(), "Suspended without the file")
	}
}

// TestBrokenFiles checks that each cell fails and recovers without the others.
func TestBrokenFiles(t *testing.T) {
	f := open(t, rocmtest.Options{Model: rocmtest.MI300X, GPUs: 1}, 0)
	g := f.tree.GPUs[0]
	f.read()
	intact := append([]float64(nil), f.values...)
	for _, c := range []struct {
		key     string
		cells   []int
		healthy bool // a text without its line end is valid
	}{
		{"gpu_busy_percent", []int{f.at(Busy, 0)}, true},
		{"mem_info_vram_used", []int{f.at(MemoryUsed, MemoryVRAM)}, true},
		{"hwmon/temp2_input", []int{f.at(Temperature, SensorJunction)}, true},
		{"pp_dpm_sclk", []int{f.at(Clock, ClockGraphics), f.at(ClockMax, ClockGraphics), f.at(ClockMin, ClockGraphics)}, false},
		{"ras/gfx_err_count", []int{f.at(Correctable, block("gfx")), f.at(Uncorrectable, block("gfx")), f.at(Deferred, block("gfx"))}, false},
		{"ras/gpu_vram_bad_pages", []int{f.at(BadPages, 0), f.at(BadPages, 1), f.at(BadPages, 2)}, false},
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
				testkit.ErrorIf(t, v != want && !(math.IsNaN(v) && math.IsNaN(want)), "%s is %s: %v = %v, want %v", c.key, name, f.wanted[i], v, want)
			}
		}
		g.Reset(t, c.key)
		f.read()
		for _, cell := range c.cells {
			v := f.values[cell]
			testkit.ErrorIf(t, v != intact[cell] && !math.IsNaN(intact[cell]), "%s is back: %v = %v, want %v", c.key, f.wanted[cell], v, intact[cell])
		}
	}
}

// TestManyPages checks a list of bad pages that takes several reads.
func TestManyPages(t *testing.T) {
	f := open(t, rocmtest.Options{GPUs: 1}, 0)
	f.tree.GPUs[0].Set(t, "ras/gpu_vram_bad_pages", strings.Repeat("0x00001a2b : 0x00001000 : R \n", 5000)+"0x00001a2c : 0x00001000 : P")
	f.read()
	f.want(BadPages, PageRetired, 5000)
	f.want(BadPages, PagePending, 1)
}

// TestAbsentFileComes checks that a missing file is found later, but not searched at once.
func TestAbsentFileComes(t *testing.T) {
	f := open(t, rocmtest.Options{GPUs: 1}, 0)
	f.read()
	f.want(FanRPM, 0, nan)
	f.tree.GPUs[0].Set(t, "hwmon/fan1_input", "1500\n")
	f.read()
	f.want(FanRPM, 0, nan)
	f.clock.t = f.clock.t.Add(absentFor)
	f.read()
	f.want(FanRPM, 0, 1500)
}

func TestVanishAndReturn(t *testing.T) {
	f := open(t, rocmtest.Options{GPUs: 2}, 0)
	g, m := f.tree.GPUs[0], new(gpumetrics.Metrics)
	f.read()
	g.Vanish(t)
	for range 3 {
		err := f.h.Read(f.values, f.due)
		testkit.FatalIf(t, !errors.Is(err, ErrLost), "Read of a gpu that is gone: %v", err)
		for i, v := range f.values {
			testkit.FatalIf(t, !math.IsNaN(v), "%v = %v of a gpu that is gone", f.wanted[i], v)
		}
		err = f.h.Metrics(m)
		testkit.FatalIf(t, !errors.Is(err, ErrLost) || m.Has(gpumetrics.EnergyAccumulator), "Metrics of a gpu that is gone: %v", err)
		testkit.FatalIf(t, f.h.Suspended(), "a missing GPU is reported as suspended")
		f.clock.t = f.clock.t.Add(time.Second)
	}
	g.Return(t)
	f.read()
	f.common(g)
	must(t, f.h.Metrics(m))

	// Metrics notices it without Read.
	f.clock.t = f.clock.t.Add(time.Minute)
	g.Vanish(t)
	err := f.h.Metrics(m)
	testkit.FatalIf(t, !errors.Is(err, ErrLost), "Metrics of a gpu that is gone: %v", err)
}

// TestReplaced checks that another board in the same slot gets new columns.
func TestReplaced(t *testing.T) {
	f := open(t, rocmtest.Options{GPUs: 1}, 0)
	g := f.tree.GPUs[0]
	f.read()
	g.Vanish(t)
	err := f.h.Read(f.values, f.due)
	testkit.FatalIf(t, !errors.Is(err, ErrLost), "%v", err)
	g.Return(t)
	g.Set(t, "unique_id", "00000000000000aa\n")
	for range 2 {
		err := f.h.Read(f.values, f.due)
		testkit.FatalIf(t, !errors.Is(err, ErrReplaced), "Read of another board: %v", err)
	}
}

// TestHwmonMoves checks a driver that was bound again, with other numbers of hwmon and of sensors.
func TestHwmonMoves(t *testing.T) {
	f := open(t, rocmtest.Options{Model: rocmtest.MI300X, GPUs: 1}, 0)
	g := f.tree.GPUs[0]
	f.read()
	old := filepath.Dir(g.Path("hwmon/name"))
	moved := filepath.Join(filepath.Dir(old), "hwmon99")
	must(t, os.MkdirAll(moved, 0o755))
	for name, text := range map[string]string{"name": "amdgpu", "temp1_label": "junction", "temp1_input": "66000", "power1_input": "400000000"} {
		must(t, os.WriteFile(filepath.Join(moved, name), []byte(text+"\n"), 0o644))
	}
	for _, name := range names(old) {
		if !strings.HasPrefix(name, "device") {
			g.Remove(t, "hwmon/"+name)
		}
	}
	f.clock.t = f.clock.t.Add(time.Minute)
	f.read()
	f.read()
	f.want(Temperature, SensorJunction, 66)
	f.want(Temperature, SensorMemory, nan)
	f.want(PowerInput, 0, 400)
}

// TestHang checks that a read waits for a driver that hangs, and returns when the driver answers.
func TestHang(t *testing.T) {
	f := open(t, rocmtest.Options{GPUs: 2}, 0)
	g := f.tree.GPUs[0]
	pipe := g.FIFO(t, "hwmon/temp2_input")
	done := make(chan error)
	go func() { done <- f.h.Read(f.values, f.due) }()
	pipe.Feed(t, "77000\n")
	must(t, <-done)
	f.want(Temperature, SensorJunction, 77)
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
	must(t, <-done)
	f.want(Temperature, SensorJunction, nan)
}
