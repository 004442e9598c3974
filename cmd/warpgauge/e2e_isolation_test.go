package main_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/race"
)

// TestE2EIsolation runs the simulated library in a child process and ruins that
// in every way there is, while a scraper takes 100 pages a second.
func TestE2EIsolation(t *testing.T) {
	t.Parallel()
	if race.Enabled {
		t.Skip("memory limits and restart times are those of the ordinary build; pkg/supervisor runs under the race detector")
	}
	exe := build(t)
	before := sharedFiles(t)
	t.Run("Ways", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T, string){
			"Crash":          testCrash,
			"Abort":          testAbort,
			"Exit":           testExit,
			"Killed":         testKilled,
			"Stopped":        testStopped,
			"Spin":           testSpin,
			"SpinAll":        testSpinAll,
			"Leak":           testLeak,
			"Garbage":        testGarbage,
			"Scribble":       testScribble,
			"Descriptors":    testDescriptors,
			"NeverAgain":     testNeverAgain,
			"ParentKilled":   testParentKilled,
			"ManyRestarts":   testManyRestarts,
			"Replaced":       testReplacedBinary,
			"RefusedInside":  testRefusedInside,
			"ReloadIsolated": testReloadIsolated,
			"StopIsolated":   testStopIsolated,
			"Release":        testRelease,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, exe)
			})
		}
	})
	if after := sharedFiles(t); !slices.Equal(before, after) {
		t.Errorf("/dev/shm holds %q, before the tests %q", after, before)
	}
}

func sharedFiles(t *testing.T) (names []string) {
	t.Helper()
	files, err := os.ReadDir("/dev/shm")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, f := range files {
		// ROCm SMI's locks and simulated trees: tests of collectors/rocm, which may run at
		// the same time, have them, and nothing here does.
		if strings.HasPrefix(f.Name(), "rocmtest-") || strings.Contains(f.Name(), "_card") || strings.Contains(f.Name(), "_renderD") {
			continue
		}
		names = append(names, f.Name())
	}
	return names
}

// isolationCSV has a gauge, a counter of the library, and two kinds of what is
// accumulated from the rows.
const isolationCSV = `DCGM_FI_DEV_GPU_TEMP, gauge, Temperature.
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, counter, Energy.
DCGM_FI_DEV_GPU_UTIL, histogram, Utilisation.
DCGM_EXP_XID_ERRORS_TOTAL, counter, XIDs since start.
`

// isolated starts the exporter with its simulated GPUs in a child process and waits
// for all eight, and for an XID of GPU 2, which must be counted once whatever else
// happens. The keys of a fault, if not empty, are of one that the test begins.
func isolated(t *testing.T, exe, fault string, args ...string) *exporter {
	t.Helper()
	xid, trouble := newTrouble(t), newTrouble(t)
	spec := "faults:\n" + xid.fault("kind: xid, device: 2, xid: 79")
	if fault != "" {
		spec += trouble.fault(fault)
	}
	e := serve(t, exe, append([]string{
		"--isolation=process", "--collect-interval=50", "--stale-after=20s",
		"-f", file(t, "counters.csv", isolationCSV), "--fake-spec=" + file(t, "spec.yaml", spec),
	}, args...)...)
	e.fault = trouble
	eventually.OK(t, "a page with 8 GPUs", func() error { return eightGPUs(e.scrape(t, acceptText)) })
	xid.begin(t)
	eventually.OK(t, "the XID", func() error { return e.scrape(t, acceptText).oneXID() })
	return e
}

func (p page) oneXID() error {
	return p.want(1, "DCGM_EXP_XID_ERRORS_TOTAL", "gpu", "2", "xid", "79")
}

// child returns the child's pid as the page has it, which is at most a second old.
func (e *exporter) child(t *testing.T) (pid int) {
	t.Helper()
	eventually.OK(t, "a child", func() error {
		v, err := e.scrape(t, acceptText).one("warpgauge_collector_child_pid", "collector", "fake")
		if pid = int(v); err == nil && pid == 0 {
			err = errors.New("none")
		}
		return err
	})
	return pid
}

// relative is a process whose parent is the exporter.
type relative struct {
	pid   int
	state string // S, R, Z …
}

// children looks into /proc.
func (e *exporter) children(t *testing.T) (out []relative) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	must(t, err)
	for _, path := range stats {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // has ended
		}
		pid, _, _ := strings.Cut(string(raw), " ")
		f := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
		if f[1] != strconv.Itoa(e.PID()) {
			continue
		}
		n, err := strconv.Atoi(pid)
		must(t, err)
		out = append(out, relative{n, f[0]})
	}
	return out
}

// restarts sums the restarts with that reason, all of them if it is empty.
func (p page) restarts(reason string) (n float64) {
	for _, s := range p.family("warpgauge_collector_child_ends_total") {
		if reason == "" || s.get("reason") == reason {
			n += s.value
		}
	}
	return n
}

// upAgain says what is missing to n restarts for that reason and all devices up
// again with rows of now.
func (p page) upAgain(n float64, reason string) error {
	var errs []error
	if got := p.restarts(reason); got < n {
		errs = append(errs, fmt.Errorf("%v restarts for %q, want %v; all: %v", got, reason, n, p.family("warpgauge_collector_child_ends_total")))
	}
	for gpu := range 8 {
		errs = append(errs, p.want(1, "warpgauge_device_state", "gpu", strconv.Itoa(gpu), "state", "up"))
	}
	errs = append(errs,
		p.want(1, "warpgauge_collector_up", "collector", "fake"),
		p.want(1, "warpgauge_collector_child_up", "collector", "fake"))
	return errors.Join(errs...)
}

// awaitRestart waits until the child has been replaced n times for a reason and
// what is accumulated is what it was, plus what is new.
func (e *exporter) awaitRestart(t *testing.T, n float64, reason string) {
	t.Helper()
	eventually.OK(t, "another child", func() error { return e.scrape(t, acceptText).upAgain(n, reason) })
	was := e.scrape(t, acceptText).values("DCGM_FI_DEV_GPU_UTIL_count")
	eventually.OK(t, "new rows in the histograms", func() error {
		for gpu, n := range e.scrape(t, acceptText).values("DCGM_FI_DEV_GPU_UTIL_count") {
			if n < was[gpu]+300 {
				return fmt.Errorf("GPU %s: %v ms, had %v", gpu, n, was[gpu])
			}
		}
		return nil
	})
	if err := e.scrape(t, acceptText).oneXID(); err != nil {
		t.Error(err)
	}
}

// oneChild wants one living child and no zombie. The one before may take a
// moment to end.
func (e *exporter) oneChild(t *testing.T) {
	t.Helper()
	eventually.OK(t, "one child and no zombie", func() error {
		if c := e.children(t); len(c) != 1 || c[0].state == "Z" {
			return fmt.Errorf("children: %v", c)
		}
		return nil
	})
}

// testDeath scrapes through a fault that ends the child once.
func testDeath(t *testing.T, exe, fault, reason string, logged ...string) {
	t.Helper()
	e := isolated(t, exe, fault)
	w := watch(t, e, eightOnPage)
	e.fault.begin(t)
	e.awaitRestart(t, 1, reason)
	w.stop(t)
	e.oneChild(t)
	for _, text := range logged {
		if !strings.Contains(e.Output(), text) {
			t.Errorf("the log does not say %q", text)
		}
	}
}

func testCrash(t *testing.T, exe string) {
	testDeath(t, exe, "kind: crash, once: true", "crash", "SIGSEGV")
}

func testAbort(t *testing.T, exe string) {
	testDeath(t, exe, "kind: abort, once: true", "abort", "Assertion `used < size' failed")
}

func testExit(t *testing.T, exe string) {
	testDeath(t, exe, "kind: exit, status: 7, once: true", "exit", "7")
}

func testKilled(t *testing.T, exe string) {
	e := isolated(t, exe, "")
	w := watch(t, e, eightOnPage)
	for n := range 3 {
		kill(t, e.child(t), syscall.SIGKILL)
		e.awaitRestart(t, float64(n+1), "signal")
	}
	w.stop(t)
	e.oneChild(t)
}

func kill(t *testing.T, pid int, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		t.Fatalf("send %v to %d: %v", s, pid, err)
	}
}

// testStopped freezes the child: its heart stops, and it is killed.
func testStopped(t *testing.T, exe string) {
	e := isolated(t, exe, "")
	w := watch(t, e, eightOnPage)
	kill(t, e.child(t), syscall.SIGSTOP)
	e.awaitRestart(t, 1, "hung")
	w.stop(t)
	e.oneChild(t)
}

// testSpin lets the call for one GPU loop for ever: the others are still sampled.
func testSpin(t *testing.T, exe string) {
	e := isolated(t, exe, "kind: spin, device: "+hungGPU, "--sample-deadline=500ms", "--stale-after=2s")
	w := watch(t, e, anything)
	e.fault.begin(t)
	eventually.OK(t, "the state of the GPU whose call does not return", func() error {
		p := e.scrape(t, acceptText)
		return errors.Join(
			p.want(1, "warpgauge_device_state", "gpu", hungGPU, "state", "stalled"),
			p.want(1, "warpgauge_device_problem", "gpu", hungGPU, "cause", "hung_call"))
	})
	eventually.OK(t, "it to leave the page", func() error {
		if n := len(e.scrape(t, acceptText).family("DCGM_FI_DEV_GPU_TEMP")); n != 7 {
			return fmt.Errorf("%d GPUs on the page, want 7", n)
		}
		return nil
	})
	testOthersAdvance(t, e)
	w.stop(t)
	e.oneChild(t)
}

// testSpinAll lets every call loop: nothing is left that the child is good for.
func testSpinAll(t *testing.T, exe string) {
	e := isolated(t, exe, "kind: spin, device: all, once: true", "--sample-deadline=500ms")
	w := watch(t, e, eightOnPage)
	e.fault.begin(t)
	e.awaitRestart(t, 1, "hung")
	w.stop(t)
	e.oneChild(t)
}

// testLeak lets the child grow until it is recycled, several times, without a
// gap: the rows never get old.
func testLeak(t *testing.T, exe string) {
	e := isolated(t, exe, "kind: leak, rate: 100", "--collector-memory-limit=250MiB", "--stale-after=10s")
	w := watch(t, e, eightOnPage)
	e.fault.begin(t)
	e.awaitRestart(t, 2, "memory")
	w.stop(t)
}

// testGarbage writes junk on the channel.
func testGarbage(t *testing.T, exe string) {
	testDeath(t, exe, "kind: garbage, once: true", "protocol")
}

// testScribble overwrites the shared memory. What the rows say is worthless
// then, but the page is a page, and a new child sets everything right.
func testScribble(t *testing.T, exe string) {
	e := isolated(t, exe, "kind: scribble")
	w := (&watcher{check: anything, junk: "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"}).start(t, e)
	e.fault.begin(t)
	w.await(t, 200)
	e.fault.end(t)
	// The memory that was overwritten goes with its child.
	kill(t, e.child(t), syscall.SIGKILL)
	eventually.OK(t, "another child", func() error { return e.scrape(t, acceptText).upAgain(1, "") })
	eventually.OK(t, "8 GPUs", func() error { return eightGPUs(e.scrape(t, acceptText)) })
	w.stop(t)
	if rss := e.resident(t, "VmHWM"); rss > 512<<20 {
		t.Errorf("the parent took %d MiB", rss>>20)
	}
}

// resident reads a line of /proc/pid/status, in bytes.
func (e *exporter) resident(t *testing.T, key string) int64 {
	t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/status", e.PID()))
	must(t, err)
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), key+":"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			must(t, err)
			return kib << 10
		}
	}
	t.Fatalf("no %s in the status of the process", key)
	return 0
}
