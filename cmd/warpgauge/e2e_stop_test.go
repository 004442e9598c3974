package main_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"warpgauge/internal/testkit/eventually"
)

// testStop ends the exporter while one GPU hangs for ever.
func testStop(t *testing.T, exe string) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			fault, spec := hang(t)
			fault.begin(t)
			e := serve(t, exe, "--collect-interval=100", "--sample-deadline=500ms", spec)
			eventually.OK(t, "the hang", func() error {
				return e.scrape(t, acceptText).want(1, "warpgauge_device_state", "gpu", hungGPU, "state", "stalled")
			})
			begin := time.Now()
			e.Signal(t, sig)
			if code := e.ExitCode(t); code != 0 {
				t.Errorf("exit code %d after %v, want 0", code, sig)
			}
			if !strings.Contains(e.Output(), "abandoned") {
				t.Errorf("the log does not say what was abandoned:\n%s", e.Output())
			}
			t.Logf("%v to exit: %v", sig, time.Since(begin))
		})
	}
}

// testNoLeaks scrapes a lot, breaks connections, stalls clients, with a GPU that
// hangs, and compares goroutines and descriptors with those before.
func testNoLeaks(t *testing.T, exe string) {
	fault, spec := hang(t)
	e := serve(t, exe, "--collect-interval=100", "--sample-deadline=500ms", "--stale-after=2s", spec)
	eventually.OK(t, "a page with 8 GPUs", func() error { return eightGPUs(e.scrape(t, acceptText)) })
	fault.begin(t)
	// The state is in what is gathered each second, as is the number of goroutines:
	// all that are started at the beginning are in it by then.
	eventually.OK(t, "the hung GPU to leave the page", func() error {
		p := e.scrape(t, acceptText)
		var err error
		if n := len(p.family("DCGM_FI_DEV_GPU_TEMP")); n != 7 {
			err = fmt.Errorf("%d GPUs on the page, want 7", n)
		}
		return errors.Join(err, p.want(1, "warpgauge_device_state", "gpu", hungGPU, "state", "stalled"))
	})
	goroutines, descriptors := e.goroutines(t), e.descriptors(t)

	const scrapers, scrapes = 20, 100
	client := newClient(t)
	client.Transport.(*http.Transport).MaxIdleConnsPerHost = scrapers
	inParallel(scrapers, func(n int) {
		for i := range scrapes {
			accept := [...]string{acceptText, acceptOpenMetrics, acceptProtobuf}[(n+i)%3]
			if a, err := try(t.Context(), client, http.MethodGet, e.url+"/metrics", "Accept", accept); err != nil || a.code != http.StatusOK {
				t.Errorf("scrape: status %d, %v", a.code, err)
				return
			}
		}
	})
	client.CloseIdleConnections()
	inParallel(scrapers, func(int) { breakConnection(t, strings.TrimPrefix(e.url, "http://")) })

	// Each look is itself a connection, which is why one more of both may be there.
	eventually.OK(t, "goroutines and descriptors as before", func() error {
		if g := e.goroutines(t); g > goroutines+1 {
			return fmt.Errorf("%v goroutines, %v before", g, goroutines)
		}
		if d := e.descriptors(t); d > descriptors+1 {
			return fmt.Errorf("%d descriptors, %d before", d, descriptors)
		}
		return nil
	})
	t.Logf("%d scrapes: %v goroutines, %d descriptors before; %v, %d after",
		scrapers*scrapes, goroutines, descriptors, e.goroutines(t), e.descriptors(t))
}

// goroutines is what the page says; it is at most a second old.
func (e *exporter) goroutines(t *testing.T) float64 {
	t.Helper()
	v, err := e.scrape(t, acceptText).one("go_goroutines")
	must(t, err)
	return v
}

func (e *exporter) descriptors(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", e.PID()))
	must(t, err)
	return len(fds)
}

// breakConnection asks for a page and goes away without reading it.
func breakConnection(t *testing.T, address string) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Errorf("connect: %v", err)
		return
	}
	fmt.Fprintf(c, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\nGET /metr")
	c.(*net.TCPConn).SetLinger(0)
	c.Close()
}
