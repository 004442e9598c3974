package accumulate

import (
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestMetricsBesideSync is for the race detector.
func TestMetricsBesideSync(t *testing.T) {
	b := newBoard(16, "GPU-a")
	s := New(Options{})
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(s)
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 200 {
			if _, err := reg.Gather(); err != nil {
				t.Error(err)
			}
			s.Overruns()
		}
	})
	for i := range 500 {
		tick(b, i, 1, 100)
		s.Sync(viewOf(b), at(float64(i)))
	}
	wg.Wait()
}

// TestSyncBesideAppend reads while the ring is written; whatever is lost must be
// counted as an overrun.
func TestSyncBesideAppend(t *testing.T) {
	const rows = 20_000
	b := newBoard(64, "GPU-a")
	v := viewOf(b)
	s := New(Options{})
	s.Sync(v, at(0)) // rows that are overwritten before the ring is followed are not lost
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range rows {
			*b.cell(0, cellPower) = 100
			b.row(at(float64(10 * i))) // too far apart for one to stand for a lost one
		}
	})
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		s.Sync(v, at(10*rows))
	}
	h := power(t, s, "GPU-a")
	checkSums(t, h)
	if got := h.Count/1000 + s.Overruns(); got != rows {
		t.Errorf("%d ms and %d overruns make %d, want %d rows", h.Count, s.Overruns(), got, rows)
	}
	if h.Sum != 100*float64(h.Count) {
		t.Errorf("sum %v of %d ms of 100", h.Sum, h.Count)
	}
}
