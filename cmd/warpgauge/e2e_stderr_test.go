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

	"golang.org/x/sys/unix"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/programtest"
)

// fullPipe returns a pipe whose buffer is full.
func fullPipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	must(t, err)
	t.Cleanup(func() { r.Close(); w.Close() })
	size := testkit.Get(unix.FcntlInt(w.Fd(), unix.F_GETPIPE_SZ, 0))(t)
	if n, err := w.Write(make([]byte, size)); err != nil || n != size {
		t.Fatalf("filled the pipe with %d bytes of %d: %v", n, size, err)
	}
	return r, w
}

var missingLine = regexp.MustCompile(`dropped log lines.*"lines": (\d+)`)

// TestE2EStandardError: the exporter never waits for the program that reads its log, which here reads nothing. It
// starts, samples in a child process, refuses a list and stops. When the pipe is read again, the buffered lines come, then the
// number of dropped lines, then new lines.
func TestE2EStandardError(t *testing.T) {
	t.Parallel()
	exe := build(t)
	r, w := fullPipe(t)
	path := file(t, "counters.csv", listA)
	e := &exporter{Process: programtest.Start(t, exe, []string{
		"--address=127.0.0.1:0", "--collect-interval=100", "--enable-only=fake", "--isolation=process", "--enable-reload-endpoint", "-f", path,
	}, programtest.Options{Env: cleanEnvironment(), Stderr: w})}
	w.Close()
	e.url = e.AwaitReady(t, "/livez")
	e.awaitList(t, markerA)

	// A list with thousands of mistakes logs a line for each, until lines are dropped.
	write(t, path, strings.Repeat("DCGM_FI_DEV_GPU_TEMP, "+strings.Repeat("x", 500)+", y\n", 5000))
	client := newClient(t)
	e.await(t, "lines are dropped, with the former list in service", count(8, markerA), func(p page) error {
		request(t, client, http.MethodPost, e.url+"/-/reload").want(t, "reload of a bad list", http.StatusInternalServerError)
		n, err := p.one("warpgauge_log_lines_dropped_total")
		if err == nil && n == 0 {
			err = errors.New("none yet")
		}
		return err
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
				n, _ := strconv.Atoi(m[1]) // the pattern matches digits only
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
	<-read // the exporter had the last descriptor of the write end
	testkit.Has(t, "first line", first, "starting")
	testkit.Has(t, "last line", last, "stopped")
}
