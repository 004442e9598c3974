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

	"warpgauge/collectors/rocm/internal/sysfs"
	"warpgauge/collectors/rocm/rocmtest"
	"warpgauge/collectors/rocm/rocmtest/smitest"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
)

// startReal starts the installed library with a tree.
func startReal(t *testing.T, tree *rocmtest.Tree) *started {
	t.Helper()
	return mustStart(t, tree, smitest.NewReal(t, tree).Enter(t).Path)
}

// TestRealLibrarySurvivesBrokenFiles checks that unexpected text gives blanks and does not end the process.
func TestRealLibrarySurvivesBrokenFiles(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI300X, Metrics: "1.7", Deferred: true})
	h := startReal(t, tree).reader(t, boards(t, tree)[0], append(everything(), sysfs.Reading{Kind: sysfs.Clock}, sysfs.Reading{Kind: sysfs.Correctable},
		sysfs.Reading{Kind: sysfs.BadPages}, sysfs.Reading{Kind: sysfs.Busy}, sysfs.Reading{Kind: sysfs.MemoryUsed})...)
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

// TestRealLibraryVanishAndReturn checks that GPUs that vanish are lost and come back, and that
// sensors with another number request another session, which reads them.
func TestRealLibraryVanishAndReturn(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI250X, GPUs: 3})
	lib := smitest.NewReal(t, tree).Enter(t)
	s := testkit.Get(startSMI(lib.Path))(t)
	over, gpus := &started{s, tree}, boards(t, tree)
	wanted := []sysfs.Reading{{Kind: sysfs.Temperature, Index: sysfs.SensorJunction}, {Kind: sysfs.Busy}}
	first, last := over.reader(t, gpus[0], wanted...), over.reader(t, gpus[2], wanted...)
	is := func(r *smiReader, g *rocmtest.GPU) {
		t.Helper()
		v := mustRead(t, r)
		if math.Abs(v[0]-float64(g.State.JunctionC)) > 1e-9 || v[1] != float64(g.State.Util) {
			t.Fatalf("%s: %v, want %d °C and %d %%", g.PCI, v, g.State.JunctionC, g.State.Util)
		}
	}
	is(first, tree.GPUs[0])
	is(last, tree.GPUs[2])
	tree.GPUs[2].Vanish(t)
	for range 2 {
		v, err := readAll(last)
		testkit.FatalIf(t, !errors.Is(err, sysfs.ErrLost) || !math.IsNaN(v[0]), "Read of a GPU that left = %v, %v, want NaN and ErrLost", v, err)
		// The same if only the library is called.
		err = last.Read(make([]float64, 2), []bool{true, false})
		testkit.FatalIf(t, !errors.Is(err, sysfs.ErrLost), "Read of a GPU that left = %v, want ErrLost", err)
	}
	tree.Step(t, time.Second)
	is(first, tree.GPUs[0])
	tree.GPUs[2].Return(t)
	tree.Step(t, time.Second)
	is(last, tree.GPUs[2])

	tree.GPUs[2].Vanish(t)
	_, err := readAll(last)
	testkit.FatalIf(t, !errors.Is(err, sysfs.ErrLost), "Read of a GPU that left = %v, want ErrLost", err)
	tree.GPUs[2].Return(t)
	hwmon := tree.GPUs[2].Path("hwmon/")
	must(t, os.Rename(hwmon, filepath.Join(filepath.Dir(filepath.Clean(hwmon)), "hwmon77")))
	v, err := readAll(last)
	testkit.FatalIf(t, !errors.Is(err, collector.ErrColumnsChanged) || !math.IsNaN(v[0]), "Read with sensors elsewhere = %v, %v, want NaN and ErrColumnsChanged", v, err)
	must(t, s.close())
	is(mustStart(t, tree, lib.Path).reader(t, gpus[2], wanted...), tree.GPUs[2])
}

// TestRealLibraryOpensNothingHarmful checks that some files are not opened: reading clears xgmi_error, pcie_bw locks
// the GPU for a second, the collector reads gpu_metrics itself, and an open /dev/kfd prevents unloading the driver.
func TestRealLibraryOpensNothingHarmful(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI250X})
	lib := smitest.NewReal(t, tree).Enter(t)
	watch := watchOpen(t, lib.KFD(), tree.GPUs[0].Path("xgmi_error"), tree.GPUs[0].Path("pcie_bw"), tree.GPUs[0].Path("gpu_metrics"))
	mustRead(t, mustStart(t, tree, lib.Path).reader(t, boards(t, tree)[0], everything()...))
	testkit.Equal(t, "opens of files that must not be opened", 0, watch())
	for _, fd := range descriptors(t) {
		testkit.ErrorIf(t, strings.Contains(fd, "kfd"), "%s is held open", fd)
	}
	// The watch itself works.
	testkit.Get(os.ReadFile(tree.GPUs[0].Path("xgmi_error")))(t)
	testkit.ErrorIf(t, watch() == 0, "the watch sees no opens")
}

// watchOpen returns a function that counts how often the files have been opened since its last call.
func watchOpen(t *testing.T, files ...string) func() int {
	t.Helper()
	fd := testkit.Get(syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK))(t)
	t.Cleanup(func() { _ = syscall.Close(fd) })
	for _, f := range files {
		_, err := syscall.InotifyAddWatch(fd, f, syscall.IN_OPEN)
		testkit.FatalIf(t, err != nil, "watch %s: %v", f, err)
	}
	return func() int {
		buf := make([]byte, 64*syscall.SizeofInotifyEvent)
		n, err := syscall.Read(fd, buf)
		if errors.Is(err, syscall.EAGAIN) {
			return 0
		}
		must(t, err)
		return n / syscall.SizeofInotifyEvent
	}
}

func descriptors(t *testing.T) []string {
	t.Helper()
	entries := testkit.Get(os.ReadDir("/proc/self/fd"))(t)
	var targets []string
	for _, e := range entries {
		if target, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name())); err == nil {
			targets = append(targets, target)
		}
	}
	return targets
}

// TestRealLibraryLeavesNothing checks that repeated opening and closing leaves only the library behind.
func TestRealLibraryLeavesNothing(t *testing.T) {
	tree := rocmtest.NewTree(t, rocmtest.Options{Model: rocmtest.MI250X})
	lib := smitest.NewReal(t, tree).Enter(t)
	gpus := boards(t, tree)
	cycle := func() {
		t.Helper()
		s := testkit.Get(startSMI(lib.Path))(t)
		r, ok := s.open(files(t, tree, gpus[0], everything()...), &gpus[0], everything())
		testkit.FatalIf(t, !ok, "the library does not list the GPU")
		mustRead(t, r)
		r.Close()
		r.Close()
		must(t, s.close())
	}
	cycle()
	before := len(descriptors(t))
	for range 20 {
		cycle()
	}
	if after := len(descriptors(t)); after != before {
		t.Errorf("%d descriptors before, %d after: %q", before, after, descriptors(t))
	}
	n := len(lib.LockFiles(t))
	testkit.ErrorIf(t, !smiThreadLocks(lib.Path) && n != len(gpus), "%d locks in /dev/shm, want one a GPU", n)
}
