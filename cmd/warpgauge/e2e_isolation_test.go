package main_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
)

// isolationCSV has a gauge, a counter from the library, and two fields accumulated from rows.
const isolationCSV = `DCGM_FI_DEV_GPU_TEMP, gauge, Temperature.
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, counter, Energy.
DCGM_FI_DEV_GPU_UTIL, histogram, Utilisation.
DCGM_EXP_XID_ERRORS_TOTAL, counter, XIDs since start.
`

// TestE2EIsolation runs the simulated library in a child process and ends the child in several ways while a client
// scrapes 100 pages a second. No page lacks a GPU, no counter goes back, and an XID is counted once. Meanwhile the
// program file is replaced, as by an upgrade: new children still run the old program. At the end the exporter is
// killed, and its child must end too. pkg/supervisor tests the reaction to each end.
func TestE2EIsolation(t *testing.T) {
	t.Parallel()
	if testkit.Race {
		t.Skip("memory limits and restart times are those of the ordinary build; pkg/supervisor runs under the race detector")
	}
	mine := filepath.Join(t.TempDir(), "warpgauge")
	program := testkit.Get(os.ReadFile(build(t)))(t)
	must(t, os.WriteFile(mine, program, 0o700))
	xid := newTrouble(t)
	entries := []string{xid.fault("kind: xid, device: 2, xid: 79")}
	fault := func(keys string) *trouble {
		f := newTrouble(t)
		entries = append(entries, f.fault(keys))
		return f
	}
	ways := []struct {
		reason, logged string
		fault          *trouble // nil: a signal instead
		signal         syscall.Signal
	}{
		{"crash", "SIGSEGV", fault("kind: crash, once: true"), 0},
		{"protocol", "", fault("kind: garbage, once: true"), 0},
		{"hung", "", fault("kind: spin, device: all, once: true"), 0},
		{"hung", "", nil, syscall.SIGSTOP},
		{"signal", "", nil, syscall.SIGKILL},
		{"memory", "", fault("kind: leak, rate: 100, once: true"), 0},
	}
	e := serve(t, mine, "--isolation=process", "--collect-interval=50", "--stale-after=20s", "--sample-deadline=1s", "--enable-pprof",
		"--collector-restart-max=100ms", "--collector-memory-limit=250MiB", "-f", file(t, "counters.csv", isolationCSV), faults(t, entries...))
	write(t, mine, "#!/bin/sh\nexit 42\n")
	e.await(t, "a page with 8 GPUs", eightGPUs)
	oneXID := is(1, "DCGM_EXP_XID_ERRORS_TOTAL", "gpu", "2", "xid", "79")
	xid.begin(t)
	e.await(t, "the XID", oneXID)
	w := watch(t, e, 1, eightGPUs)
	ends := map[string]float64{}
	for _, way := range ways {
		ends[way.reason]++
		if way.fault != nil {
			way.fault.begin(t)
		} else {
			must(t, syscall.Kill(e.child(t), way.signal))
		}
		was := e.await(t, "another child after "+way.reason, upAgain(ends[way.reason], way.reason)).values("DCGM_FI_DEV_GPU_UTIL_count")
		e.await(t, "new rows in the histograms", oneXID, func(p page) error {
			for gpu, n := range p.values("DCGM_FI_DEV_GPU_UTIL_count") {
				if n < was[gpu]+300 {
					return fmt.Errorf("GPU %s: %v ms, had %v", gpu, n, was[gpu])
				}
			}
			return nil
		})
		testkit.Has(t, "log", e.Output(), way.logged)
	}
	e.oneChild(t)
	e.manyRestarts(t, int(ends["signal"]))
	w.stop(t)
	e.oneChild(t)
	child := e.child(t)
	e.Signal(t, syscall.SIGKILL)
	<-e.Ended()
	eventually.True(t, "the end of the child", func() bool { return !alive(child) })
}

// manyRestarts kills the child until it was killed 50 times, and compares the parent's resources.
func (e *exporter) manyRestarts(t *testing.T, killed int) {
	t.Helper()
	const kills = 50
	collect := func() (held, int, int) { // rings are unmapped by the garbage collector
		client := newClient(t)
		for range 2 {
			get(t, client, e.url+"/debug/pprof/heap?gc=1")
		}
		client.CloseIdleConnections()
		return e.holding(t), strings.Count(procFile(t, e.PID(), "maps"), "/memfd:"), mebibytes(t, e.PID(), "VmRSS")
	}
	before, _, resident := collect()
	for n := killed; n < kills; n++ {
		var old int
		eventually.True(t, "a child", func() bool {
			c := e.children(t)
			if len(c) == 1 {
				old = c[0]
			}
			return old > 0
		})
		must(t, syscall.Kill(old, syscall.SIGKILL))
		eventually.OK(t, "another child", func() error {
			if c := e.children(t); len(c) != 1 || c[0] == old {
				return fmt.Errorf("children: %v", c)
			}
			return nil
		})
		was := e.scrape(t, acceptText).values("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")["0"]
		e.await(t, "its rows", func(p page) error {
			if v := p.values("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")["0"]; v <= was {
				return fmt.Errorf("energy is %v as before", v)
			}
			return nil
		})
	}
	e.await(t, "all of them in the metrics", upAgain(kills, "signal"))
	// Mapped rings: those in service, earlier ones until the next page is rendered, and those of a starting child.
	eventually.OK(t, "descriptors, goroutines and mappings as before", func() error {
		now, mapped, _ := collect()
		if now.descriptors > before.descriptors+2 || now.goroutines > before.goroutines+4 || mapped > 3*8 {
			return fmt.Errorf("%+v, %d mappings, before %+v", now, mapped, before)
		}
		return nil
	})
	testkit.AtMost(t, "MiB of resident memory", resident+64, mebibytes(t, e.PID(), "VmRSS"))
}

// child returns the child's pid from the page, which is at most a second old.
func (e *exporter) child(t *testing.T) (pid int) {
	t.Helper()
	e.await(t, "a child", func(p page) error {
		v, err := p.one("warpgauge_collector_child_pid", "collector", "fake")
		if pid = int(v); err == nil && !alive(pid) {
			err = errors.New("none")
		}
		return err
	})
	return pid
}

// alive reports whether a process runs. A zombie does not count: it remains if no process reaps orphans.
func alive(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && pid > 0 && !bytes.HasPrefix(raw[bytes.LastIndexByte(raw, ')')+1:], []byte(" Z"))
}

// restarts sums the restarts with a reason, or all if reason is empty.
func (p page) restarts(reason string) (n float64) {
	for _, s := range p.family("warpgauge_collector_child_ends_total") {
		if reason == "" || s.get("reason") == reason {
			n += s.value
		}
	}
	return n
}

// upAgain checks that there were n restarts for a reason, and that all devices are up with current rows.
func upAgain(n float64, reason string) func(page) error {
	return func(p page) error {
		errs := []error{p.want(1, "warpgauge_collector_up", "collector", "fake"), p.want(1, "warpgauge_collector_child_up", "collector", "fake")}
		if got := p.restarts(reason); got < n {
			errs = append(errs, fmt.Errorf("%v restarts for %q, want %v; all: %v", got, reason, n, p.family("warpgauge_collector_child_ends_total")))
		}
		for gpu := range 8 {
			errs = append(errs, p.want(1, "warpgauge_device_state", "gpu", strconv.Itoa(gpu), "state", "up"))
		}
		return errors.Join(errs...)
	}
}

// oneChild expects one living child and no zombie. The previous child may take a moment to end.
func (e *exporter) oneChild(t *testing.T) {
	t.Helper()
	eventually.OK(t, "one child and no zombie", func() error {
		if c := e.children(t); len(c) != 1 || !alive(c[0]) {
			return fmt.Errorf("children: %v", c)
		}
		return nil
	})
}
