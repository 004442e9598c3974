package main

import (
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"warpgauge/internal/testkit/eventually"
	"warpgauge/pkg/config"
	"warpgauge/pkg/session"
)

func TestReleaseOverHTTP(t *testing.T) {
	s := startServe(t, environment{}, "-c", "50", "--enable-release-endpoint")
	s.awaitOnPage("\nDCGM_FI_DEV_GPU_TEMP{gpu=\"7\"")
	if code, _, body := s.do(http.MethodPost, "/-/release?collector=nvml"); code != http.StatusNotFound || !strings.Contains(body, `"fake"`) {
		t.Errorf("release of a collector that is not enabled: %d %q", code, body)
	}
	if code, _, body := s.do(http.MethodPost, "/-/release?collector=fake&for=1h"); code != http.StatusOK {
		t.Fatalf("release: %d %q", code, body)
	}
	if page := s.page(); strings.Contains(page, "\nDCGM_FI_DEV_GPU_TEMP{") {
		t.Error("series of a released collector are on the page")
	}
	s.awaitOnPage("warpgauge_collector_problem{cause=\"released\",collector=\"fake\"} 1")
	s.awaitOnPage("warpgauge_devices{collector=\"fake\",state=\"released\"} ")
	if code, _, body := s.do(http.MethodGet, "/readyz"); code != http.StatusOK {
		t.Errorf("readyz while released: %d %q", code, body)
	}
	if code, _, body := s.do(http.MethodPost, "/-/resume"); code != http.StatusOK {
		t.Fatalf("resume: %d %q", code, body)
	}
	s.awaitOnPage("\nDCGM_FI_DEV_GPU_TEMP{gpu=\"7\"")
}

func TestReleaseBySignal(t *testing.T) {
	s := startServe(t, environment{}, "-c", "50")
	s.awaitOnPage("\nDCGM_FI_DEV_GPU_TEMP{gpu=\"7\"")
	if code, _, _ := s.do(http.MethodPost, "/-/release"); code != http.StatusForbidden {
		t.Errorf("release over HTTP without its flag: %d, want 403", code)
	}
	must(t, syscall.Kill(os.Getpid(), syscall.SIGUSR1))
	eventually.True(t, "the release", func() bool { return strings.Contains(s.log.String(), "released: nothing is held") })
	if page := s.page(); strings.Contains(page, "\nDCGM_FI_DEV_GPU_TEMP{") {
		t.Error("series of a released collector are on the page")
	}
	must(t, syscall.Kill(os.Getpid(), syscall.SIGUSR2))
	s.awaitOnPage("\nDCGM_FI_DEV_GPU_TEMP{gpu=\"7\"")
}

// TestStopWhileReleased: startServe checks the exit code and what is left.
func TestStopWhileReleased(t *testing.T) {
	s := startServe(t, environment{}, "-c", "50", "--enable-release-endpoint")
	s.awaitOnPage("\nDCGM_FI_DEV_GPU_TEMP{gpu=\"7\"")
	if code, _, body := s.do(http.MethodPost, "/-/release"); code != http.StatusOK {
		t.Fatalf("release: %d %q", code, body)
	}
}

// simulatedEngine runs simulated GPUs in this process until the test ends.
func simulatedEngine(t *testing.T) *engine {
	t.Helper()
	cfg := config.Default()
	node, err := simulatedVendor(cfg, time.Time{})
	must(t, err)
	list, _, err := (&counters{cfg: cfg}).parse(&config.Content{CSV: []byte("DCGM_FI_DEV_GPU_TEMP, gauge, t\n")})
	must(t, err)
	a := &app{flags: config.NewSet(noEnvironment)}
	e := a.newEngine(cfg, []vendor{node}, list, nil, zap.NewNop())
	done := make(chan error, 1)
	go func() { done <- e.Run(t.Context()) }()
	t.Cleanup(func() { must(t, <-done) })
	return e
}

func TestAForgottenReleaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := simulatedEngine(t)
		r := newReleaser(e, 10*time.Minute, zap.NewNop())
		state := func() session.Cause {
			time.Sleep(2 * time.Second)
			return e.Status()[0].Cause
		}
		f := func(wait time.Duration, want session.Cause) {
			t.Helper()
			time.Sleep(wait)
			if got := state(); got != want {
				t.Errorf("after %v: cause %q, want %q", wait, got, want)
			}
		}
		must(t, r.release(t.Context(), "", 0, "test"))
		f(0, session.CauseReleased)
		f(9*time.Minute, session.CauseReleased)
		must(t, r.release(t.Context(), "fake", time.Hour, "test")) // begins again
		f(50*time.Minute, session.CauseReleased)
		f(11*time.Minute, session.CauseNone)

		must(t, r.release(t.Context(), "", -1, "test")) // for ever
		f(24*time.Hour, session.CauseReleased)
		must(t, r.resume("fake", "test"))
		f(0, session.CauseNone)

		must(t, r.release(t.Context(), "", time.Minute, "test"))
		must(t, r.resume("", "test"))
		must(t, r.release(t.Context(), "", -1, "test")) // the minute is no more
		f(time.Hour, session.CauseReleased)
		if err := r.resume("nvml", "test"); err == nil {
			t.Error("resume of a collector that is not enabled succeeded")
		}
	})
}
