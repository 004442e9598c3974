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
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is a Gatherer that takes a while and answers with a counter that
// counts the gatherings, unless it is frozen.
type script struct {
	takes  time.Duration
	frozen bool
	err    error
	calls  []time.Duration // since the first, when each began
	began  time.Time
	waits  int // the gathering that takes a second longer
}

func (s *script) Gather() ([]*dto.MetricFamily, error) {
	if s.began.IsZero() {
		s.began = time.Now()
	}
	s.calls = append(s.calls, time.Since(s.began))
	time.Sleep(s.takes)
	if len(s.calls) == s.waits {
		time.Sleep(time.Second)
	}
	v := float64(len(s.calls))
	if s.frozen {
		v = 1
	}
	return []*dto.MetricFamily{counter("test_calls_total", "", v)}, s.err
}

func counter(name, help string, v float64) *dto.MetricFamily {
	kind := dto.MetricType_COUNTER
	return &dto.MetricFamily{Name: &name, Help: &help, Type: &kind, Metric: []*dto.Metric{{Counter: &dto.Counter{Value: &v}}}}
}

func TestFirstPageIsComplete(t *testing.T) {
	p := New(NewRegistry("1.2.3", "abc"), Options{})
	if p.Version() != 1 {
		t.Errorf("version: got %d, want 1", p.Version())
	}
	for name, page := range map[string][]byte{"text": p.Text(), "openmetrics": p.OpenMetrics(), "protobuf": p.Protobuf()} {
		for _, want := range []string{"go_goroutines", "process_cpu_seconds_total", "warpgauge_build_info", "1.2.3"} {
			if !strings.Contains(string(page), want) {
				t.Errorf("%s: no %q on the page", name, want)
			}
		}
	}
}

func TestRunGathersEachInterval(t *testing.T) {
	f := func(takes, interval time.Duration, want ...time.Duration) {
		t.Helper()
		gathersAt(t, &script{takes: takes}, interval, want...)
	}
	const ms = time.Millisecond
	f(0, 0, 0, 1000*ms, 2000*ms, 3000*ms)
	f(0, 100*ms, 0, 100*ms, 200*ms)
	f(20*ms, 0, 0, 1020*ms, 2040*ms, 3060*ms, 4080*ms) // 20 ms in a second are 2 %
	f(100*ms, 0, 0, 1100*ms, 2200*ms, 3300*ms, 3400*ms+4900*ms)
	f(5000*ms, 0, 0, 6000*ms, 12_000*ms, 18_000*ms, 23_000*ms+maxInterval/restPerWork*restPerWork)
	f(0, time.Minute, 0, time.Minute, 2*time.Minute)
	// One that waits for a second changes nothing, however slow the others are.
	gathersAt(t, &script{waits: 3}, 0, 0, 1000*ms, 2000*ms, 4000*ms, 5000*ms)
	gathersAt(t, &script{waits: 5, takes: 100 * ms}, 0, 0, 1100*ms, 2200*ms, 3300*ms, 8300*ms, 9400*ms+4900*ms)
}

// gathersAt runs a page and wants gatherings to begin at these times.
func gathersAt(t *testing.T, s *script, interval time.Duration, want ...time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := New(s, Options{Interval: interval})
		began := time.Now().Add(-s.takes)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		time.Sleep(time.Until(began.Add(want[len(want)-1] + s.takes + time.Nanosecond)))
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
		if len(s.calls) != len(want) {
			t.Fatalf("gatherings began at %v, want %v", s.calls, want)
		}
		for i := range want {
			if s.calls[i] != want[i] {
				t.Errorf("gathering %d began at %v, want %v", i, s.calls[i], want[i])
			}
		}
	})
}

func TestVersionGrowsWithTheBytes(t *testing.T) {
	s := &script{}
	p := New(s, Options{})
	p.refresh()
	if p.Version() != 2 {
		t.Errorf("version after a change: got %d, want 2", p.Version())
	}
	before := string(p.Text())
	kept := p.Text()
	s.frozen = true
	p.refresh() // 3: back to 1
	p.refresh()
	p.refresh()
	if p.Version() != 3 {
		t.Errorf("version after gatherings that changed nothing: got %d, want 3", p.Version())
	}
	if string(kept) != before {
		t.Error("published bytes were changed")
	}
}

func TestEmptyGathering(t *testing.T) {
	p := New(prometheus.NewRegistry(), Options{})
	if p.Version() != 1 || len(p.Text())+len(p.OpenMetrics())+len(p.Protobuf()) != 0 {
		t.Errorf("version %d, text %q", p.Version(), p.Text())
	}
	p.refresh()
	if p.Version() != 1 {
		t.Errorf("version after a gathering that changed nothing: got %d, want 1", p.Version())
	}
}

// TestErrorsLoseNothingElse: one collector fails, one family cannot be encoded;
// the rest is on the page, and one log line tells of the change.
func TestErrorsLoseNothingElse(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	reg := prometheus.NewRegistry()
	nameless := counter("", "", 1)
	bad := errors.New("disk on fire")
	g := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		own, err := reg.Gather()
		if err != nil {
			t.Error(err)
		}
		if bad == nil {
			return own, nil
		}
		return append([]*dto.MetricFamily{nameless, counter("test_good_total", "", 4)}, own...), bad
	})
	p := New(g, Options{Registerer: reg, Logger: zap.New(core)})
	p.refresh()
	for _, page := range [][]byte{p.Text(), p.OpenMetrics()} {
		for _, want := range []string{"test_good_total 4", "warpgauge_self_gather_errors_total 1", "warpgauge_self_gather_duration_seconds_count 1"} {
			if !strings.Contains(string(page), want) {
				t.Errorf("no %q on the page:\n%s", want, page)
			}
		}
	}
	bad = nil
	p.refresh()
	p.refresh()
	if got := logs.Len(); got != 2 {
		t.Errorf("got %d log lines, want one for each change: %v", got, logs.All())
	}
	if !strings.Contains(string(p.Text()), "warpgauge_self_gather_errors_total 2") {
		t.Errorf("errors are not counted once per gathering:\n%s", p.Text())
	}
}

func TestReadersBesideRefresh(t *testing.T) {
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

func BenchmarkRefresh(b *testing.B) {
	p := New(NewRegistry("", ""), Options{})
	b.ReportAllocs()
	for b.Loop() {
		p.refresh()
	}
	b.SetBytes(int64(len(p.Text()) + len(p.OpenMetrics()) + len(p.Protobuf())))
}
