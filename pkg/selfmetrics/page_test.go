package selfmetrics

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is a Gatherer with a given duration. Its counter counts the gatherings.
type script struct {
	takes time.Duration
	err   error
	calls []time.Duration // start of each, since the first
	began time.Time
}

func (s *script) Gather() ([]*dto.MetricFamily, error) {
	if s.began.IsZero() {
		s.began = time.Now()
	}
	s.calls = append(s.calls, time.Since(s.began))
	time.Sleep(s.takes)
	v := float64(len(s.calls))
	return []*dto.MetricFamily{counter("test_calls_total", "", v)}, s.err
}

func counter(name, help string, v float64) *dto.MetricFamily {
	kind := dto.MetricType_COUNTER
	return &dto.MetricFamily{Name: &name, Help: &help, Type: &kind, Metric: []*dto.Metric{{Counter: &dto.Counter{Value: &v}}}}
}

// TestRunGathers: each second while scrapes come that often, else a second before the next scrape or every ten seconds.
// Expensive gatherings are further apart.
func TestRunGathers(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name            string
		takes, interval time.Duration
		scrapes         time.Duration // between scrapes; 0 means none
		want            []time.Duration
	}{
		{"no scrapes", 0, 0, 0, []time.Duration{0, 10_000 * ms, 20_000 * ms}},
		{"many scrapes", 0, 0, 50 * ms, []time.Duration{0, 1000 * ms, 2000 * ms, 3000 * ms}},
		{"a scrape each 15 s", 0, 0, 15_000 * ms, []time.Duration{0, 10_000 * ms, 24_000 * ms, 44_000 * ms, 59_000 * ms}},
		{"another interval", 0, 100 * ms, 0, []time.Duration{0, 1000 * ms, 2000 * ms}},
		{"20 ms in a second are 2 %", 20 * ms, 0, 10 * ms, []time.Duration{0, 1020 * ms, 2040 * ms}},
		{"expensive", 50 * ms, 0, 10 * ms, []time.Duration{0, 1050 * ms, 3550 * ms, 6050 * ms}},
		{"very expensive", 2000 * ms, 0, 10 * ms, []time.Duration{0, 3000 * ms, 15_000 * ms, 27_000 * ms}},
	} {
		t.Run(c.name, func(t *testing.T) {
			gathersAt(t, &script{takes: c.takes}, c.interval, c.scrapes, c.want...)
		})
	}
}

// gathersAt runs a page and checks when gatherings begin.
func gathersAt(t *testing.T, s *script, interval, scrapes time.Duration, want ...time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := New(s, Options{Interval: interval})
		began := time.Now().Add(-s.takes)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		end := time.After(time.Until(began.Add(want[len(want)-1] + s.takes + time.Nanosecond)))
		scrape := make(<-chan time.Time)
		if scrapes > 0 {
			scrape = time.Tick(scrapes)
		}
		for running := true; running; {
			select {
			case <-scrape:
				p.Version()
			case <-end:
				running = false
			}
		}
		synctest.Wait()
		cancel()
		err := <-done
		testkit.ErrorIf(t, err != nil, "run: %v", err)
		testkit.Equal(t, "gatherings began at", want, s.calls)
	})
}

// TestErrorsLoseNothingElse: one collector fails, one family cannot be encoded;
// the rest is on the page, and one log line reports the change.
func TestErrorsLoseNothingElse(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	reg := prometheus.NewRegistry()
	nameless := counter("", "", 1)
	bad := errors.New("disk on fire")
	g := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		own, err := reg.Gather()
		testkit.ErrorIf(t, err != nil, "%v", err)
		if bad == nil {
			return own, nil
		}
		return append([]*dto.MetricFamily{nameless, counter("test_good_total", "", 4)}, own...), bad
	})
	p := New(g, Options{Registerer: reg, Logger: zap.New(core)})
	p.refresh()
	for _, page := range [][]byte{p.Text(), p.OpenMetrics()} {
		for _, want := range []string{"test_good_total 4", "warpgauge_self_gather_errors_total 1", "warpgauge_self_gather_duration_seconds_count 1"} {
			testkit.ErrorIf(t, !strings.Contains(string(page), want), "no %q on the page:\n%s", want, page)
		}
	}
	bad = nil
	p.refresh()
	p.refresh()
	testkit.Equal(t, "log lines, one for each change", 2, logs.Len())
	if !strings.Contains(string(p.Text()), "warpgauge_self_gather_errors_total 2") {
		t.Errorf("errors are not counted once per gathering:\n%s", p.Text())
	}
}

func TestReadersDuringRefresh(t *testing.T) {
	p := New(&script{}, Options{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 500 {
			p.refresh()
		}
	})
	for range 4 {
		wg.Go(func() {
			for last := uint64(0); last < 501; {
				v := p.Version()
				if v < last || len(p.Text()) == 0 || len(p.OpenMetrics()) == 0 || len(p.Protobuf()) == 0 {
					t.Errorf("version %d after %d, text of %d bytes", v, last, len(p.Text()))
					return
				}
				last = v
			}
		})
	}
	wg.Wait()
}
