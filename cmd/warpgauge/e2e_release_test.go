package main_test

import (
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

// testRelease lets the collector's process go and has it back, over and over, by
// request and by signal, while a scraper looks.
func testRelease(t *testing.T, exe string) {
	e := isolated(t, exe, "", "--enable-release-endpoint")
	w := watch(t, e, anything)
	client := newClient(t)
	if a := request(t, client, http.MethodPost, e.url+"/-/release?collector=nvml"); a.code != http.StatusNotFound || !strings.Contains(string(a.body), `"fake"`) {
		t.Errorf("release of a collector that is not enabled: %d %s", a.code, a.body)
	}
	for n := range 6 {
		was := e.scrape(t, acceptText).values("DCGM_FI_DEV_GPU_UTIL_count")
		begin := time.Now()
		if n%2 == 0 {
			if a := request(t, client, http.MethodPost, e.url+"/-/release?collector=fake"); a.code != http.StatusOK {
				t.Fatalf("release: %d %s", a.code, a.body)
			}
		} else {
			e.Signal(t, syscall.SIGUSR1)
			eventually.OK(t, "the end of the child", func() error {
				if c := e.children(t); len(c) > 0 {
					return fmt.Errorf("children: %v", c)
				}
				return nil
			})
		}
		t.Logf("released after %v", time.Since(begin))
		if c := e.children(t); len(c) > 0 {
			t.Errorf("children while released: %v", c)
		}
		p := e.scrape(t, acceptText)
		if s := p.family("DCGM_FI_DEV_GPU_TEMP"); len(s) > 0 {
			t.Errorf("series while released: %v", s)
		}
		eventually.OK(t, "the state in the metrics", func() error {
			p := e.scrape(t, acceptText)
			return errors.Join(
				p.want(1, "warpgauge_collector_problem", "collector", "fake", "cause", "released"),
				p.want(8, "warpgauge_devices", "collector", "fake", "state", "released"),
				p.want(1, "warpgauge_device_state", "gpu", "3", "state", "released"),
				p.want(0, "warpgauge_collector_up", "collector", "fake"))
		})
		if a := get(t, client, e.url+"/readyz"); a.code != http.StatusOK {
			t.Errorf("readyz while released: %d %s", a.code, a.body)
		}
		if n%2 == 0 {
			if a := request(t, client, http.MethodPost, e.url+"/-/resume"); a.code != http.StatusOK {
				t.Fatalf("resume: %d %s", a.code, a.body)
			}
		} else {
			e.Signal(t, syscall.SIGUSR2)
		}
		eventually.OK(t, "all of it again", func() error { return e.scrape(t, acceptText).upAgain(0, "") })
		eventually.OK(t, "histograms that continue from where they were", func() error {
			for gpu, n := range e.scrape(t, acceptText).values("DCGM_FI_DEV_GPU_UTIL_count") {
				if n <= was[gpu] {
					return fmt.Errorf("GPU %s: %v samples, had %v", gpu, n, was[gpu])
				}
			}
			return nil
		})
	}
	w.stop(t)
	e.oneChild(t)
	if n := e.scrape(t, acceptText).restarts(""); n != 0 {
		t.Errorf("%v restarts counted, want none", n)
	}
	// Ends well while released, too.
	if a := request(t, client, http.MethodPost, e.url+"/-/release?for=0"); a.code != http.StatusOK {
		t.Fatalf("release: %d %s", a.code, a.body)
	}
	e.Signal(t, syscall.SIGTERM)
	e.ends(t)
}

// openFiles are what a process has open.
func openFiles(pid int) (out []string) {
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return nil
	}
	for _, l := range links {
		if target, err := os.Readlink(l); err == nil {
			out = append(out, target)
		}
	}
	return out
}

// holds reports whether the exporter or a child of it has a file below dir open.
func (e *exporter) holds(t *testing.T, dir string) (held []string) {
	t.Helper()
	pids := []int{e.PID()}
	for _, c := range e.children(t) {
		pids = append(pids, c.pid)
	}
	for _, pid := range pids {
		for _, f := range openFiles(pid) {
			if strings.HasPrefix(f, dir) {
				held = append(held, fmt.Sprintf("%d: %s", pid, f))
			}
		}
	}
	return held
}
