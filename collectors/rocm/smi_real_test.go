//go:build linux && cgo

package rocm

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"warpgauge/collectors/rocm/internal/raw"
	"warpgauge/collectors/rocm/internal/sysfs"
	"warpgauge/collectors/rocm/rocmtest"
	"warpgauge/collectors/rocm/rocmtest/smitest"
	"warpgauge/pkg/collector"
)

// openReal opens the installed library over a tree.
func openReal(t *testing.T, tree *rocmtest.Tree) (*smiReader, *smitest.Real, smiOptions) {
	t.Helper()
	lib := smitest.NewReal(t, tree).Enter(t)
	o := smiOptionsFor(t, tree, lib.Path)
	return mustOpenSMI(t, o), lib, o
}

// The installed library and /sys say the same of values that move, and what
// both say is what the tree was told.
func TestRealLibraryAndSysfsAgree(t *testing.T) {
	for name, of := range map[string]rocmtest.Options{
		"MI250X":     {Model: rocmtest.MI250X},
		"MI300X":     {Model: rocmtest.MI300X},
		"MI300X DPX": {Model: rocmtest.MI300X, Partition: "DPX"},
		"MI300X CPX": {Model: rocmtest.MI300X, Partition: "CPX", Memory: "NPS4"},
		"Radeon":     {Model: rocmtest.RX7900, NoBMC: true},
		"APU":        {Model: rocmtest.APU},
	} {
		t.Run(name, func(t *testing.T) {
			of.GPUs = 3
			tree := rocmtest.NewTree(t, of)
			r, _, o := openReal(t, tree)
			all := everything()
			for i, g := range o.GPUs {
				lib := mustHandle(t, r, g, all...)
				sys := mustHandle(t, sysfs.New(sysfs.Options{Root: tree.Root}), g, all...)
				for range 3 {
					tree.Step(t, 1700*time.Millisecond)
					got, want := mustRead(t, lib), mustRead(t, sys)
					for j, w := range all {
						if lib.Has()[j] && !same(got[j], want[j]) {
							t.Errorf("%s, reading %+v: library %v, /sys %v", g.PCI, w, got[j], want[j])
						}
						if lib.Has()[j] && !sys.Has()[j] {
							t.Errorf("%s: the library has reading %+v and /sys does not", g.PCI, w)
						}
						if !lib.Has()[j] && !math.IsNaN(got[j]) {
							t.Errorf("%s: reading %+v is %v though it is not had", g.PCI, w, got[j])
						}
					}
					check := func(w raw.Reading, want float64) {
						t.Helper()
						for j := range all {
							if all[j] == w && !same(got[j], want) {
								t.Errorf("%s: reading %+v is %v, the tree says %v", g.PCI, w, got[j], want)
							}
						}
					}
					s := tree.GPUs[i].State
					check(raw.Reading{Kind: raw.Busy}, float64(s.Util))
					check(raw.Reading{Kind: raw.MemoryUsed}, float64(s.VRAMUsed))
					check(raw.Reading{Kind: raw.Replays}, float64(s.Replays))
					if of.Model != rocmtest.APU {
						check(raw.Reading{Kind: raw.Temperature, Index: raw.SensorJunction}, float64(s.JunctionC))
						check(raw.Reading{Kind: raw.MemoryBusy}, float64(s.MemUtil))
					}
				}
			}
		})
	}
}

// What the installed library can do is not silently left to /sys.
func TestRealLibraryIsAsked(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI250X})
	r, _, o := openReal(t, tree)
	all := everything()
	has := mustHandle(t, r, o.GPUs[0], all...).Has()
	f := func(w raw.Reading, want bool) {
		t.Helper()
		for i := range all {
			if all[i] == w && has[i] != want {
				t.Errorf("has %+v = %v, want %v", w, has[i], want)
			}
		}
	}
	for i := range raw.Sensors {
		f(raw.Reading{Kind: raw.Temperature, Index: i}, true)
		f(raw.Reading{Kind: raw.TemperatureCrit, Index: i}, true)
	}
	for _, k := range []raw.Kind{raw.Busy, raw.MemoryBusy, raw.PowerAverage, raw.PowerCap, raw.PowerCapMin, raw.Voltage, raw.MemoryUsed, raw.Replays} {
		f(raw.Reading{Kind: k}, true)
	}
	f(raw.Reading{Kind: raw.FanRPM}, false) // no fan
	asserts := r.shared.build.asserts
	f(raw.Reading{Kind: raw.Clock}, !asserts)
	f(raw.Reading{Kind: raw.BadPages}, !asserts)
	f(raw.Reading{Kind: raw.Correctable}, !asserts && r.shared.lib.has(smiPower))
}

// Text that ends the process of who asks a library with asserts for it.
func TestRealLibrarySurvivesWhatAborts(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI300X, Metrics: "1.7", Deferred: true})
	r, _, o := openReal(t, tree)
	h := mustHandle(t, r, o.GPUs[0], everything()...)
	g := tree.GPUs[0]
	for _, broken := range []struct{ file, text string }{
		{"ras/umc_err_count", rocmtest.Inaccessible},
		{"ras/gpu_vram_bad_pages", "garbage\n"},
		{"pp_dpm_sclk", "S: 19Mhz *\n0: 500Mhz\n1: 2100Mhz\n"},
		{"gpu_busy_percent", ""},
		{"mem_busy_percent", "many\n"},
		{"mem_info_vram_used", ""},
		{"hwmon/temp2_input", ""},
		{"hwmon/temp3_input", "99999999999999999999\n"},
		{"hwmon/power1_cap", "-\n"},
		{"pcie_replay_count", "\x00\xff"},
	} {
		g.Set(t, broken.file, broken.text)
		mustRead(t, h)
	}
}

// A file that is empty, or whose read fails, is no load of 0.
func TestRealLibraryTellsNoFalseZero(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI250X})
	r, _, o := openReal(t, tree)
	h := mustHandle(t, r, o.GPUs[0], raw.Reading{Kind: raw.Busy}, raw.Reading{Kind: raw.Temperature})
	f := func(text string, want float64) {
		t.Helper()
		tree.GPUs[0].Set(t, "gpu_busy_percent", text)
		if got := mustRead(t, h); !same(got[0], want) {
			t.Errorf("gpu_busy_percent %q: got %v, want %v", text, got[0], want)
		}
	}
	f("0\n", 0)
	f("", math.NaN())
	f("31\n", 31)
	f("\n", math.NaN())
	f("x\n", math.NaN())
	f("100\n", 100)
	f("101\n", math.NaN())
}

// GPUs that leave are lost, and known again when they are back, with what they
// say then.
func TestRealLibraryVanishAndReturn(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI250X, GPUs: 3})
	r, _, o := openReal(t, tree)
	wanted := []raw.Reading{{Kind: raw.Temperature, Index: raw.SensorJunction}, {Kind: raw.Busy}}
	first, last := mustHandle(t, r, o.GPUs[0], wanted...), mustHandle(t, r, o.GPUs[2], wanted...)
	is := func(h raw.Handle, g *rocmtest.GPU) {
		t.Helper()
		v := mustRead(t, h)
		if v[0] != float64(g.State.JunctionC) || v[1] != float64(g.State.Util) {
			t.Fatalf("%s: %v, want %d °C and %d %%", g.PCI, v, g.State.JunctionC, g.State.Util)
		}
	}
	is(first, tree.GPUs[0])
	is(last, tree.GPUs[2])

	tree.GPUs[2].Vanish(t)
	for range 2 {
		if v, err := readAll(last); !errors.Is(err, collector.ErrDeviceLost) || !math.IsNaN(v[0]) {
			t.Fatalf("Read of a GPU that left = %v, %v, want NaN and ErrDeviceLost", v, err)
		}
	}
	is(first, tree.GPUs[0])

	without := o
	without.GPUs = boards(t, tree)
	second := mustOpenSMI(t, without)
	if n := len(second.shared.index); n != 2 {
		t.Fatalf("%d GPUs listed, want 2", n)
	}
	tree.Step(t, time.Second)
	is(first, tree.GPUs[0])
	is(mustHandle(t, second, o.GPUs[1], wanted...), tree.GPUs[1])
	if _, err := readAll(last); !errors.Is(err, collector.ErrDeviceLost) {
		t.Errorf("Read of a GPU that left = %v, want ErrDeviceLost", err)
	}

	tree.GPUs[2].Return(t)
	third := mustOpenSMI(t, o)
	tree.Step(t, time.Second)
	is(mustHandle(t, third, o.GPUs[2], wanted...), tree.GPUs[2])
	is(last, tree.GPUs[2])
	is(first, tree.GPUs[0])
}

// Without a second Open, too: a reading finds out that its GPU is back and has
// the library look.
func TestRealLibraryFindsTheGPUAgain(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI250X})
	r, _, o := openReal(t, tree)
	h := mustHandle(t, r, o.GPUs[1], raw.Reading{Kind: raw.Temperature, Index: raw.SensorJunction})
	mustRead(t, h)
	tree.GPUs[1].Vanish(t)
	if _, err := readAll(h); !errors.Is(err, collector.ErrDeviceLost) {
		t.Fatalf("Read = %v, want ErrDeviceLost", err)
	}
	tree.GPUs[1].Return(t)
	// The sensors come back under another number, as they do.
	hwmon := tree.GPUs[1].Path("hwmon/")
	if err := os.Rename(hwmon, filepath.Join(filepath.Dir(filepath.Clean(hwmon)), "hwmon77")); err != nil {
		t.Fatal(err)
	}
	for {
		if v, err := readAll(h); err == nil && v[0] == float64(tree.GPUs[1].State.JunctionC) {
			return
		}
		if t.Context().Err() != nil {
			t.Fatal("never read again")
		}
		time.Sleep(time.Millisecond) // the library is started on another thread
	}
}

// A GPU that the library forgets though it is there is neither lost nor taken
// for another one.
func TestRealLibraryWithAGapInItsCards(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI250X, GPUs: 3})
	r, _, o := openReal(t, tree)
	wanted := raw.Reading{Kind: raw.Temperature, Index: raw.SensorJunction}
	last := mustHandle(t, r, o.GPUs[2], wanted)
	mustRead(t, last)
	tree.GPUs[0].Vanish(t)
	o.GPUs = boards(t, tree)
	second := mustOpenSMI(t, o)
	tree.Step(t, time.Second)
	for i, g := range o.GPUs {
		want := float64(tree.GPUs[i+1].State.JunctionC)
		h, err := second.Open(t.Context(), &g, []raw.Reading{wanted})
		if _, listed := second.shared.index[g.PCI]; listed != (err == nil) {
			t.Fatalf("Open(%s) = %v, listed %v", g.PCI, err, listed)
		}
		if err != nil {
			continue
		}
		if v := mustRead(t, h); v[0] != want {
			t.Errorf("%s: %v, want %v", g.PCI, v[0], want)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
	v, err := readAll(last)
	if _, listed := second.shared.index[o.GPUs[1].PCI]; listed {
		if err != nil || v[0] != float64(tree.GPUs[2].State.JunctionC) {
			t.Errorf("Read = %v, %v, want the GPU's own", v, err)
		}
	} else if !errors.Is(err, collector.ErrColumnsChanged) || !math.IsNaN(v[0]) {
		t.Errorf("Read of a forgotten GPU = %v, %v, want NaN and ErrColumnsChanged", v, err)
	}
}

// Where /dev/shm cannot be written to, rsmi_init fails and any call after it
// would crash. Open says what is the matter, as often as it is tried.
func TestRealLibraryWithoutSharedMemory(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI250X})
	lib := smitest.NewReal(t, tree).Enter(t)
	if b, err := inspectSMI(lib.Path); err != nil || b.threadLocks {
		t.Skip("the installed library keeps its locks to itself")
	}
	o := smiOptionsFor(t, tree, lib.BreakLocks(t).Path)
	for range 3 {
		if _, err := openSMI(t.Context(), o); !errors.Is(err, smiStatusError{smiInitError}) || !strings.Contains(err.Error(), "/dev/shm") {
			t.Errorf("openSMI = %v, want status 8 and a word about /dev/shm", err)
		}
	}
}

// The installed library itself, on this machine: it is found under one of the
// usual names, and where there is no AMD GPU that is said.
func TestRealLibraryHere(t *testing.T) {
	smitest.Installed(t)
	r, err := openSMI(t.Context(), smiOptions{})
	if err == nil {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		return
	}
	if !errors.Is(err, smiStatusError{smiInitError}) && !strings.Contains(err.Error(), "before rsmi_init") {
		t.Errorf("openSMI = %v", err)
	}
	t.Log(err)
}

// Files whose reading does harm are not opened: xgmi_error is cleared by it,
// pcie_bw takes a second with the GPU locked, gpu_metrics is read from /sys, and
// /dev/kfd stands in the way of the driver's removal.
func TestRealLibraryOpensNothingHarmful(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI250X})
	lib := smitest.NewReal(t, tree).Enter(t)
	watch := watchOpen(t, lib.KFD(), tree.GPUs[0].Path("xgmi_error"), tree.GPUs[0].Path("pcie_bw"), tree.GPUs[0].Path("gpu_metrics"))
	o := smiOptionsFor(t, tree, lib.Path)
	r := mustOpenSMI(t, o)
	mustRead(t, mustHandle(t, r, o.GPUs[0], everything()...))
	if opened := watch(); opened != 0 {
		t.Errorf("%d opens of files that must not be opened", opened)
	}
	for _, fd := range descriptors(t) {
		if strings.Contains(fd, "kfd") {
			t.Errorf("%s is held open", fd)
		}
	}
	// That the watch works.
	if _, err := os.ReadFile(tree.GPUs[0].Path("xgmi_error")); err != nil {
		t.Fatal(err)
	}
	if watch() == 0 {
		t.Error("the watch sees no opens")
	}
}

// watchOpen returns a function that tells how often files have been opened since
// it was last called.
func watchOpen(t *testing.T, files ...string) func() int {
	t.Helper()
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	for _, f := range files {
		if _, err := syscall.InotifyAddWatch(fd, f, syscall.IN_OPEN); err != nil {
			t.Fatalf("watch %s: %v", f, err)
		}
	}
	return func() int {
		buf := make([]byte, 64*syscall.SizeofInotifyEvent)
		n, err := syscall.Read(fd, buf)
		if errors.Is(err, syscall.EAGAIN) {
			return 0
		}
		if err != nil {
			t.Fatal(err)
		}
		return n / syscall.SizeofInotifyEvent
	}
}

func descriptors(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name())); err == nil {
			targets = append(targets, target)
		}
	}
	return targets
}

// Opening and closing again and again leaves nothing behind but the library.
func TestRealLibraryLeavesNothing(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI250X})
	lib := smitest.NewReal(t, tree).Enter(t)
	o := smiOptionsFor(t, tree, lib.Path)
	cycle := func() {
		t.Helper()
		r, err := openSMI(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		h, err := r.Open(t.Context(), &o.GPUs[0], everything())
		if err != nil {
			t.Fatal(err)
		}
		mustRead(t, h)
		if err := errors.Join(h.Close(), h.Close(), r.Close(), r.Close()); err != nil {
			t.Fatal(err)
		}
	}
	cycle()
	before := len(descriptors(t))
	for range 20 {
		cycle()
	}
	if after := len(descriptors(t)); after != before {
		t.Errorf("%d descriptors before, %d after: %q", before, after, descriptors(t))
	}
	if n := len(lib.LockFiles(t)); r5(t, lib) && n != len(o.GPUs) {
		t.Errorf("%d locks in /dev/shm, want one a GPU", n)
	}
}

// r5 reports whether the library keeps its locks in /dev/shm.
func r5(t *testing.T, lib *smitest.Real) bool {
	t.Helper()
	b, err := inspectSMI(lib.Path)
	if err != nil {
		t.Fatal(err)
	}
	return !b.threadLocks
}
