package main_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"warpgauge/internal/testkit/eventually"
)

// testDescriptors takes every descriptor from the child and reloads meanwhile. The
// old list stays in service until the new one can be opened, and is asked for again.
func testDescriptors(t *testing.T, exe string) {
	path := file(t, "counters.csv", isolationCSV)
	e := isolated(t, exe, "kind: fds", "-f", path)
	w := watch(t, e, eightOnPage)
	e.fault.begin(t)
	eventually.OK(t, "the descriptors to be gone", func() error {
		if n := descriptors(t, e.child(t)); n < 1000 {
			return fmt.Errorf("the child has %d", n)
		}
		return nil
	})
	write(t, path, isolationCSV+"DCGM_FI_DEV_MEM_CLOCK, gauge, Clock.\n")
	eventually.OK(t, "the reload that cannot be", func() error {
		if text := e.Output(); !strings.Contains(text, "too many open files") {
			return errors.New("the log does not say why")
		}
		return nil
	})
	w.await(t, 100)
	e.fault.end(t)
	e.Signal(t, syscall.SIGHUP)
	e.awaitList(t, "DCGM_FI_DEV_MEM_CLOCK")
	eventually.OK(t, "all devices up", func() error { return e.scrape(t, acceptText).upAgain(0, "") })
	w.stop(t)
	e.oneChild(t)
}

func descriptors(t *testing.T, pid int) int {
	t.Helper()
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if errors.Is(err, os.ErrNotExist) {
		return 0
	}
	must(t, err)
	return len(fds)
}

// testNeverAgain ends each child at once for a while: the last rows stay until
// --stale-after, then leave; the states say why; and all comes back.
func testNeverAgain(t *testing.T, exe string) {
	e := isolated(t, exe, "kind: abort, message: no more of this", "--stale-after=3s", "--collector-restart-max=500ms")
	begun := time.Now() // before the fault: what is asked of pages after it is less than is due
	w := watch(t, e, func(page map[string]float64) error {
		if time.Since(begun) < 2*time.Second { // the last row is not 3 s old yet
			return eightOnPage(page)
		}
		return nil
	})
	e.fault.begin(t)
	eventually.OK(t, "the devices to leave the page", func() error {
		if n := len(e.scrape(t, acceptText).family("DCGM_FI_DEV_GPU_TEMP")); n != 0 {
			return fmt.Errorf("%d GPUs on the page, want none", n)
		}
		return nil
	})
	eventually.OK(t, "the reason in the metrics", func() error {
		p := e.scrape(t, acceptText)
		return errors.Join(
			p.want(1, "warpgauge_device_state", "gpu", "0", "state", "stalled"),
			p.want(1, "warpgauge_device_problem", "gpu", "0", "cause", "child_exited"),
			p.want(0, "warpgauge_collector_up", "collector", "fake"))
	})
	if a := get(t, newClient(t), e.url+"/health"); a.code != http.StatusOK {
		t.Errorf("GET /health: status %d, want 200", a.code)
	}
	e.fault.end(t)
	e.awaitRestart(t, 2, "")
	w.stop(t)
	if !strings.Contains(e.Output(), "no more of this") {
		t.Error("the log does not say what the child wrote")
	}
	e.oneChild(t)
}

// testParentKilled ends the exporter without a chance to tidy up. Its child goes
// with it, also one that is stopped and one that loops.
func testParentKilled(t *testing.T, exe string) {
	for _, way := range []string{"idle", "stopped", "spinning"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			fault := ""
			if way == "spinning" {
				fault = "kind: spin, device: all"
			}
			e := isolated(t, exe, fault, "--sample-deadline=500ms")
			if way == "spinning" {
				e.fault.begin(t)
				eventually.OK(t, "the loop", func() error {
					return e.scrape(t, acceptText).want(1, "warpgauge_device_state", "gpu", "0", "state", "stalled")
				})
			}
			child := e.child(t)
			if way == "stopped" {
				kill(t, child, syscall.SIGSTOP)
			}
			e.Signal(t, syscall.SIGKILL)
			<-e.Ended()
			killed := time.Now()
			eventually.OK(t, "the end of the child", func() error {
				if alive(child) {
					return fmt.Errorf("child %d is there", child)
				}
				return nil
			})
			t.Logf("gone %v after the parent", time.Since(killed))
		})
	}
}

// alive reports whether a process is there. A zombie is not: if no process reaps
// orphans, that is what remains of them.
func alive(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	return !bytes.HasPrefix(raw[bytes.LastIndexByte(raw, ')')+1:], []byte(" Z"))
}

// testManyRestarts kills the child 50 times and compares what the parent holds.
func testManyRestarts(t *testing.T, exe string) {
	const kills = 50
	e := isolated(t, exe, "", "--enable-pprof", "--collector-restart-max=100ms")
	w := watch(t, e, eightOnPage)
	next := func() {
		old := e.children(t)[0].pid
		kill(t, old, syscall.SIGKILL)
		eventually.OK(t, "another child", func() error {
			if c := e.children(t); len(c) != 1 || c[0].pid == old {
				return fmt.Errorf("children: %v", c)
			}
			return nil
		})
		was := e.scrape(t, acceptText).values("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")["0"]
		eventually.OK(t, "its rows", func() error {
			if v := e.scrape(t, acceptText).values("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")["0"]; v <= was {
				return fmt.Errorf("energy is %v as before", v)
			}
			return nil
		})
	}
	next()
	next()
	before := e.holdings(t)
	for range kills - 2 {
		next()
	}
	w.stop(t)
	eventually.OK(t, "all of them in the metrics", func() error { return e.scrape(t, acceptText).upAgain(kills, "signal") })
	// Mapped are the rings in service, those before them until a page without
	// them was rendered, and those of a child that is being started.
	eventually.OK(t, "descriptors, goroutines and mappings as before", func() error {
		now := e.holdings(t)
		if now.descriptors > before.descriptors+2 || now.goroutines > before.goroutines+4 || now.mappings > 3*8 {
			return fmt.Errorf("%+v, before %+v", now, before)
		}
		return nil
	})
	now := e.holdings(t)
	t.Logf("after 2 restarts %+v, after %d %+v", before, kills, now)
	if now.resident > before.resident+64<<20 {
		t.Errorf("resident memory grew from %d to %d MiB", before.resident>>20, now.resident>>20)
	}
	e.oneChild(t)
}

// holdings are what a process can hold on to by mistake.
type holdings struct {
	descriptors, mappings, goroutines int
	resident                          int64
}

func (e *exporter) holdings(t *testing.T) holdings {
	t.Helper()
	// Rings are unmapped when the collector of garbage finds them.
	client := newClient(t)
	for range 2 {
		get(t, client, e.url+"/debug/pprof/heap?gc=1")
	}
	threads := get(t, client, e.url+"/debug/pprof/goroutine?debug=1")
	var goroutines int
	if _, err := fmt.Sscanf(string(threads.body), "goroutine profile: total %d", &goroutines); err != nil {
		t.Fatalf("read the goroutine profile: %v", err)
	}
	client.CloseIdleConnections()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", e.PID()))
	must(t, err)
	return holdings{
		descriptors: e.descriptors(t), mappings: strings.Count(string(maps), "/memfd:"),
		goroutines: goroutines, resident: e.resident(t, "VmRSS"),
	}
}

// testReplacedBinary puts another file in the place of the running program, as
// an upgrade does: new children are still of the one that runs.
func testReplacedBinary(t *testing.T, exe string) {
	raw, err := os.ReadFile(exe)
	must(t, err)
	mine := filepath.Join(t.TempDir(), "warpgauge")
	must(t, os.WriteFile(mine, raw, 0o700))
	e := isolated(t, mine, "")
	write(t, mine, "#!/bin/sh\nexit 42\n")
	w := watch(t, e, eightOnPage)
	kill(t, e.child(t), syscall.SIGKILL)
	e.awaitRestart(t, 1, "")
	w.stop(t)
	e.oneChild(t)
}

// testRefusedInside gives a spec that ends processes to an exporter without a
// wall: it says so and does not start.
func testRefusedInside(t *testing.T, exe string) {
	spec := file(t, "spec.yaml", "faults:\n- {kind: crash}\n")
	code, out := runToEnd(t, exe, "--address=127.0.0.1:0", "--isolation=none",
		"--enable-only=fake", "--fake-spec="+spec)
	if code != 1 || !strings.Contains(out, "line 2") || !strings.Contains(out, "--isolation=process") {
		t.Errorf("exit code %d, want 1 and where and why:\n%s", code, out)
	}
}

// withChildren returns a program that is exe with --isolation=process, so that
// tests of one process can be run with child processes.
func withChildren(t *testing.T, exe string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "isolated")
	script := fmt.Sprintf("#!/bin/sh\nexec %q --isolation=process \"$@\"\n", exe)
	must(t, os.WriteFile(path, []byte(script), 0o700))
	return path
}

// testReloadIsolated: no gap and no duplicate with a child process either.
func testReloadIsolated(t *testing.T, exe string) { testReload(t, withChildren(t, exe)) }

// testStopIsolated ends the exporter while a call inside the child hangs, and
// wants the child gone, too.
func testStopIsolated(t *testing.T, exe string) {
	e := isolated(t, exe, "kind: hang, device: "+hungGPU, "--sample-deadline=500ms")
	e.fault.begin(t)
	eventually.OK(t, "the hang", func() error {
		return e.scrape(t, acceptText).want(1, "warpgauge_device_state", "gpu", hungGPU, "state", "stalled")
	})
	child := e.child(t)
	begin := time.Now()
	e.Signal(t, syscall.SIGTERM)
	e.ends(t)
	t.Logf("%v to exit", time.Since(begin))
	if alive(child) {
		t.Errorf("child %d outlives the exporter", child)
	}
}
