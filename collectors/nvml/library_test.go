//go:build linux && cgo

package nvml

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// at returns options for a simulated node, with enough patience for a slow machine. Tests of calls that hang set less.
func at(n *nvmltest.Node) Options {
	return Options{Library: n.Library(), Root: n.Root(), Getenv: noVariables, Patience: eventually.Patience}
}

// open opens a collector with a list of one field.
func open(t *testing.T, o Options) (*Collector, []collector.Source) {
	t.Helper()
	return openList(t, o, temperature(t))
}

// openList opens a collector and closes it when the test ends.
func openList(t testing.TB, o Options, list field.List) (*Collector, []collector.Source) {
	t.Helper()
	c := New(o)
	sources := testkit.Get(c.Open(t.Context(), list))(t)
	t.Cleanup(func() {
		err := c.Close()
		testkit.ErrorIf(t, err != nil, "Close: %v", err)
	})
	return c, sources
}

// sampleAll samples every source.
func sampleAll(t testing.TB, sources []collector.Source) (rows [][]float64) {
	t.Helper()
	for _, s := range sources {
		row, due := make([]float64, len(s.Columns())), slices.Repeat([]bool{true}, len(s.Columns()))
		err := s.Sample(row, due)
		testkit.ErrorIf(t, err != nil, "Sample: %v", err)
		rows = append(rows, row)
	}
	return rows
}

// mustHold checks whether NVML and this process hold resources.
func mustHold(t *testing.T, n *nvmltest.Node, want bool) {
	t.Helper()
	held, files := n.Held(), n.OpenFiles(0)
	testkit.ErrorIf(t, want != (held.Inits > 0) || want != (len(files) > 0), "held: %+v, open: %v; want any: %v", held, files, want)
}

func TestBothCollectorsInOneProcess(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 2})
	for range 2 { // closed and opened again
		first, sources := open(t, at(n))
		testkit.FatalIf(t, len(sources) != 2, "%d sources, want 2", len(sources))
		mustHold(t, n, true)
		second := NewProcesses(at(n))
		others := testkit.Get(second.Open(t.Context(), field.List{}))(t)
		must(t, first.Close())
		mustHold(t, n, true)
		sampleAll(t, others)
		must(t, second.Close())
		mustHold(t, n, false)
	}
}

func TestAFailedOpenLeavesNothingBehind(t *testing.T) {
	if nvmltest.OwnProcess(t) {
		return // a process without a library
	}
	n := nvmltest.New(t, nvmltest.Config{GPUs: 2})
	mapped := func() bool {
		maps := testkit.Get(os.ReadFile("/proc/self/maps"))(t)
		return strings.Contains(string(maps), n.Library())
	}
	f := func(sentinel error, texts ...string) {
		t.Helper()
		_, err := New(at(n)).Open(t.Context(), temperature(t))
		testkit.FatalIf(t, err == nil || (sentinel != nil) != errors.Is(err, collector.ErrNotLoaded), "got %v, want ErrNotLoaded: %v", err, sentinel != nil)
		t.Log(err)
		for _, text := range texts {
			testkit.ErrorIf(t, !strings.Contains(err.Error(), text), "got %v, want it to say %q", err, text)
		}
		mustHold(t, n, false)
		testkit.ErrorIf(t, mapped(), "the library is still mapped")
	}
	n.Unload()
	f(collector.ErrNotLoaded, n.Library(), "/proc/driver/nvidia/version is missing", "modprobe nvidia")
	n.LoadDriver("999.10.01")
	f(nil, "is of driver 580.", "the loaded kernel driver is 999.10.01", "reboot")
	n.LoadDriver("")
	n.Return(nvmltest.Host, "nvmlInitWithFlags", "LIBRARY_NOT_FOUND")
	f(nil, "stub")
	n.Return(nvmltest.Host, "nvmlInitWithFlags", "SUCCESS")
	n.Return(nvmltest.Host, "nvmlSystemGetDriverVersion", "DRIVER_NOT_LOADED")
	f(nil, "being loaded or unloaded")
	n.Clear(nvmltest.Host)

	// With the library present, Open works.
	_, sources := open(t, at(n))
	sampleAll(t, sources)
	mustHold(t, n, true)
	testkit.ErrorIf(t, !mapped(), "the library is not mapped although it is in use")
}

func TestFieldsThatNoGPUHasKeepNothingOpen(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 1})
	_, err := New(at(n)).Open(t.Context(), listOf(t, "DCGM_FI_DEV_CPU_UTIL_TOTAL, gauge, of a CPU\n"))
	testkit.ErrorIf(t, !errors.Is(err, collector.ErrNothingToRead), "got %v, want %v", err, collector.ErrNothingToRead)
	mustHold(t, n, false)
}

// TestDriverThatIsUpgraded checks that this process stays bound to the old library.
func TestDriverThatIsUpgraded(t *testing.T) {
	if nvmltest.OwnProcess(t) {
		return
	}
	n := nvmltest.New(t, nvmltest.Config{GPUs: 1})
	o := at(n)
	o.Library = n.Install(filepath.Join(t.TempDir(), soname))
	c, _ := open(t, o)
	must(t, c.Close())
	n.Unload()
	n.LoadDriver("999.10.01")
	if _, err := New(o).Open(t.Context(), temperature(t)); err == nil || errors.Is(err, collector.ErrOutdated) || !strings.Contains(err.Error(), "999.10.01") {
		t.Errorf("the driver alone was upgraded: %v, want a mismatch that a new process would not mend", err)
	}
	next := n.Install(filepath.Join(t.TempDir(), soname)) // the library is new as well
	must(t, os.Rename(next, o.Library))
	_, err := New(o).Open(t.Context(), temperature(t))
	if !errors.Is(err, collector.ErrOutdated) || !strings.Contains(err.Error(), "--isolation=process") {
		t.Errorf("both were upgraded: %v, want %v", err, collector.ErrOutdated)
	}
	t.Log(err)
	mustHold(t, n, false)
	must(t, os.Remove(o.Library))
	if _, err := New(o).Open(t.Context(), temperature(t)); err == nil || errors.Is(err, collector.ErrOutdated) {
		t.Errorf("there is no other library: %v", err)
	}
}

func TestAnInitThatHangs(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 1})
	for _, function := range []string{"nvmlInitWithFlags", "nvmlSystemGetDriverVersion"} {
		release := n.Hang(nvmltest.Host, function)
		first := make(chan error, 1)
		c := New(at(n))
		go func() {
			_, err := c.Open(context.Background(), temperature(t))
			first <- err
		}()
		for n.Hanging() == 0 {
			time.Sleep(time.Millisecond)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err := New(at(n)).Open(ctx, temperature(t))
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "earlier call") {
			t.Errorf("%s: a second Open: %v, want the end of its context", function, err)
		}
		release()
		if err := <-first; err != nil {
			t.Errorf("%s: the first Open: %v", function, err)
		}
		must(t, c.Close())
		mustHold(t, n, false)
	}
}

// TestCloseWaitsForACallThatHangs checks that Close does not shut NVML down during a call.
func TestCloseWaitsForACallThatHangs(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 2})
	release := n.Hang(1, "nvmlDeviceGetHandleByIndex_v2")
	defer release()
	o := at(n)
	o.Patience = 300 * time.Millisecond
	c, _ := open(t, o)
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	select {
	case err := <-closed:
		t.Fatalf("closed (%v) during a call", err)
	case <-time.After(50 * time.Millisecond):
	}
	mustHold(t, n, true)
	release()
	must(t, <-closed)
	mustHold(t, n, false)
}

// TestAFailedOpenDuringACallThatHangs checks that Open returns and that the library is closed when the call returns.
func TestAFailedOpenDuringACallThatHangs(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 1})
	release := n.Hang(nvmltest.Host, "nvmlDeviceGetCount_v2")
	defer release()
	o := at(n)
	o.Patience = 100 * time.Millisecond
	_, err := New(o).Open(t.Context(), temperature(t))
	testkit.ErrorIf(t, !errors.Is(err, errHangs), "got %v, want %v", err, errHangs)
	mustHold(t, n, true)
	release()
	eventually.True(t, "the library is closed", func() bool { return n.Held().Inits == 0 })
}
