package main_test

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/programtest"
)

// TestE2EStandardError: nothing that the exporter does waits for the program that reads
// its log, which here reads nothing, reads again, or has ended.
func TestE2EStandardError(t *testing.T) {
	t.Parallel()
	exe := build(t)
	for name, test := range map[string]func(*testing.T, string){
		"Full":         testFullPipe,
		"SecondSignal": testFullPipeSecondSignal,
		"Closed":       testClosedPipe,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, exe)
		})
	}
}

// fullPipe is a pipe into which nothing more fits.
func fullPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	must(t, err)
	t.Cleanup(func() { r.Close(); w.Close() })
	size, err := unix.FcntlInt(w.Fd(), unix.F_GETPIPE_SZ, 0)
	must(t, err)
	if n, err := w.Write(make([]byte, size)); err != nil || n != size {
		t.Fatalf("filled the pipe with %d bytes of %d: %v", n, size, err)
	}
	return r, w
}

// serveInto is serve with that standard error.
func serveInto(t *testing.T, exe string, stderr *os.File, args ...string) *exporter {
	t.Helper()
	args = append([]string{
		"--address=127.0.0.1:0", "--collect-interval=100",
		"--enable-only=fake",
	}, args...)
	e := &exporter{Process: programtest.Start(t, exe, args, programtest.Options{Env: cleanEnvironment(), Stderr: stderr})}
	e.Await(t, "the exporter listens", func() error {
		address, err := e.Address()
		e.url = "http://" + address
		return err
	})
	return e
}

var missingLine = regexp.MustCompile(`lines are left out.*"lines": (\d+)`)

// testFullPipe starts, samples in a child process, reloads and stops. When the pipe is read again, the lines that
// waited come, then how many did not, and then new ones.
func testFullPipe(t *testing.T, exe string) {
	_, full := fullPipe(t)
	bad := programtest.Start(t, exe, []string{"--address=nonsense", "--enable-fake"}, programtest.Options{Env: cleanEnvironment(), Stderr: full})
	if code := bad.ExitCode(t); code != 1 {
		t.Errorf("exit code %d of a bad start with a full pipe, want 1", code)
	}
	r, w := fullPipe(t)
	path := file(t, "counters.csv", listA)
	e := serveInto(t, exe, w, "--isolation=process", "--enable-reload-endpoint", "-f", path)
	w.Close()
	e.awaitList(t, markerA)
	write(t, path, listB) // the file watch reloads
	e.awaitList(t, markerB)
	write(t, path, listA)
	e.Signal(t, syscall.SIGHUP)
	e.awaitList(t, markerA)

	// A list with thousands of mistakes, each a line of the log, until lines are dropped.
	write(t, path, strings.Repeat("DCGM_FI_DEV_GPU_TEMP, "+strings.Repeat("x", 500)+", y\n", 5000))
	client := newClient(t)
	e.await(t, "lines are dropped, with the former list in service", count(8, markerA), func(p page) error {
		if a := request(t, client, http.MethodPost, e.url+"/-/reload"); a.code != http.StatusInternalServerError {
			t.Fatalf("POST /-/reload of a bad list: status %d", a.code)
		}
		return droppedLines(p)
	})

	var missing atomic.Int64
	var first, last string
	read := make(chan struct{})
	go func() {
		defer close(read)
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if last = lines.Text(); first == "" {
				first = last
			}
			if m := missingLine.FindStringSubmatch(last); m != nil {
				n, _ := strconv.Atoi(m[1]) // digits
				missing.Add(int64(n))
			}
		}
	}()
	e.await(t, "as many lines are said to be missing as are counted", func(p page) error {
		n, err := p.one("warpgauge_log_lines_dropped_total")
		if said := missing.Load(); err == nil && (said == 0 || int64(n) != said) {
			err = fmt.Errorf("%v are counted, %d said to be missing", n, said)
		}
		return err
	})
	e.ends(t, syscall.SIGTERM)
	<-read // the exporter had the last descriptor of the other end
	if !strings.Contains(first, "starting") || !strings.Contains(last, "stopped") {
		t.Errorf("the first line is %q, the last %q; want that it starts, and that it has stopped", first, last)
	}
}

// droppedLines is nil if lines are counted.
func droppedLines(p page) error {
	n, err := p.one("warpgauge_log_lines_dropped_total")
	if err == nil && n == 0 {
		err = errors.New("none yet")
	}
	return err
}

// testFullPipeSecondSignal ends at once although a GPU hangs.
func testFullPipeSecondSignal(t *testing.T, exe string) {
	_, w := fullPipe(t)
	fault, spec := hang(t)
	fault.begin(t)
	e := serveInto(t, exe, w, "--sample-deadline=500ms", spec)
	e.await(t, "the hang", is(1, "warpgauge_device_state", "gpu", hungGPU, "state", "stalled"))
	e.Signal(t, syscall.SIGTERM)
	eventually.OK(t, "the first signal is taken: nothing is served any more", func() error {
		if _, err := e.Address(); err == nil {
			return errors.New("it still listens")
		}
		return nil
	})
	// One that comes within 500 ms is taken for the first again. By itself it would take two
	// seconds to end.
	select {
	case <-time.After(700 * time.Millisecond):
	case <-e.Ended():
		t.Fatal("it ended while a GPU hangs, sooner than it gives up")
	}
	e.Signal(t, syscall.SIGTERM)
	if code := e.ExitCode(t); code != 1 {
		t.Errorf("exit code %d after two signals, want 1", code)
	}
}

// testClosedPipe: the program that read the log has ended. Lines are counted, and after
// that nothing is different.
func testClosedPipe(t *testing.T, exe string) {
	r, w, err := os.Pipe()
	must(t, err)
	defer w.Close()
	path := file(t, "counters.csv", listA)
	e := serveInto(t, exe, w, "-f", path)
	e.awaitList(t, markerA)
	r.Close()
	write(t, path, listB)
	e.await(t, "lines are counted", count(8, markerB), droppedLines)
	e.ends(t, syscall.SIGTERM)
}
