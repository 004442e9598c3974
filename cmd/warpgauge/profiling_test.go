package main

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
)

// TestPauseProfilingOverHTTP: profiling fields leave the page and nothing else
// does, a reload does not bring them back, and a resume does.
func TestPauseProfilingOverHTTP(t *testing.T) {
	const counters = "DCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_FI_PROF_SM_ACTIVE, gauge, s\n"
	csv := tempFile(t, "counters.csv", counters)
	s := startServe(t, environment{}, "-c", "50", "-f", csv, "--enable-release-endpoint", "--enable-reload-endpoint")
	post := func(path string) {
		t.Helper()
		if code, _, body := s.do(http.MethodPost, path); code != http.StatusOK {
			t.Fatalf("%s: %d %q", path, code, body)
		}
	}
	s.awaitOnPage("\nDCGM_FI_PROF_SM_ACTIVE{gpu=\"7\"")
	s.awaitOnPage("\nwarpgauge_profiling_paused 0\n")
	post("/-/profiling/pause?for=1h")
	paused := func(when string) {
		t.Helper()
		page := s.page()
		if strings.Contains(page, "\nDCGM_FI_PROF_SM_ACTIVE{") || !strings.Contains(page, "\nDCGM_FI_DEV_GPU_TEMP{gpu=\"7\"") {
			t.Errorf("%s: the page must lack profiling fields and nothing else", when)
		}
	}
	paused("paused")
	s.awaitOnPage("\nwarpgauge_profiling_paused 1\n")
	writeFile(t, csv, counters+"DCGM_FI_DEV_POWER_USAGE, gauge, p\n")
	post("/-/reload")
	s.awaitOnPage("\nDCGM_FI_DEV_POWER_USAGE{gpu=\"7\"")
	paused("reloaded while paused")
	post("/-/profiling/resume")
	s.awaitOnPage("\nDCGM_FI_PROF_SM_ACTIVE{gpu=\"7\"")
	s.awaitOnPage("\nwarpgauge_profiling_paused 0\n")
	s.awaitOnPage("\nDCGM_FI_DEV_POWER_USAGE{gpu=\"7\"")
}

func TestAForgottenPauseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list, _, err := (&counters{cfg: config.Default()}).parse(&config.Content{CSV: []byte("DCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_FI_PROF_SM_ACTIVE, gauge, s\n")})
		must(t, err)
		var mu sync.Mutex // a timer calls, too
		var served []string
		answer := error(nil)
		p := newProfiler(list, func(_ context.Context, l field.List) error {
			mu.Lock()
			defer mu.Unlock()
			served = nil
			for _, f := range l.Fields {
				served = append(served, f.Name)
			}
			return answer
		}, 10*time.Minute, zap.NewNop())
		all, some := []string{"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_PROF_SM_ACTIVE"}, []string{"DCGM_FI_DEV_GPU_TEMP"}
		f := func(wait time.Duration, want []string) {
			t.Helper()
			time.Sleep(wait)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(served, want) {
				t.Errorf("after %v: %q, want %q", wait, served, want)
			}
		}
		must(t, p.pause(t.Context(), 0, "test"))
		f(9*time.Minute, some)
		must(t, p.pause(t.Context(), time.Hour, "test")) // begins again
		f(59*time.Minute, some)
		f(2*time.Minute, all)

		must(t, p.pause(t.Context(), -1, "test")) // for ever
		f(100*time.Hour, some)
		must(t, p.resume(t.Context(), "test"))
		f(0, all)

		must(t, p.pause(t.Context(), time.Minute, "test"))
		must(t, p.resume(t.Context(), "test"))
		must(t, p.pause(t.Context(), -1, "test")) // the minute is no more
		f(time.Hour, some)
		refused := errors.New("no")
		mu.Lock()
		answer = refused
		mu.Unlock()
		if err := p.reload(t.Context(), list); !errors.Is(err, refused) {
			t.Errorf("reload: %v", err)
		}
		f(0, some)
		mu.Lock()
		answer = nil
		mu.Unlock()
		must(t, p.resume(t.Context(), "test"))

		must(t, p.pause(t.Context(), time.Minute, "test"))
		ctx, stop := context.WithCancel(t.Context())
		stop()
		must(t, p.run(ctx)) // the end of the exporter ends timers
		f(time.Hour, some)
	})
}

// TestARenewedPauseIsNotEndedByTheFormer: the timer of the first pause fires while a
// reload holds the turn and a second pause waits for it.
func TestARenewedPauseIsNotEndedByTheFormer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow, applied atomic.Int64 // what applying takes; how many fields were applied last
		list, _, err := (&counters{cfg: config.Default()}).parse(&config.Content{CSV: []byte("DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, a\nDCGM_FI_DEV_GPU_TEMP, gauge, t\n")})
		must(t, err)
		p := newProfiler(list, func(_ context.Context, l field.List) error {
			time.Sleep(time.Duration(slow.Load()))
			applied.Store(int64(len(l.Fields)))
			return nil
		}, 0, zap.NewNop())
		must(t, p.pause(t.Context(), time.Minute, "test"))
		time.Sleep(50 * time.Second)
		slow.Store(int64(20 * time.Second))
		var others sync.WaitGroup
		others.Go(func() { _ = p.reload(t.Context(), list) })
		time.Sleep(5 * time.Second)
		others.Go(func() { _ = p.pause(t.Context(), 10*time.Minute, "test") })
		time.Sleep(6 * time.Second)
		slow.Store(0)
		others.Wait()
		time.Sleep(time.Second)
		paused := func() (is bool) {
			must(t, p.inTurn(t.Context(), func() error { is = p.paused; return nil }))
			return is
		}
		if n := applied.Load(); n != 1 || !paused() {
			t.Errorf("after the reload %d fields are read, paused: %v; want 1 and a pause", n, paused())
		}
		time.Sleep(10 * time.Minute)
		if n := applied.Load(); n != 2 || paused() {
			t.Errorf("after the second pause %d fields are read, paused: %v; want 2 and none", n, paused())
		}
	})
}
