package accumulate

import (
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestMetrics(t *testing.T) {
	b, gone := newBoard(16, "GPU-a"), newBoard(16, "GPU-b")
	s := New(Options{})
	tick(b, 0, 20, 100)
	v := viewOf(b, gone)
	s.Sync(v, at(20))
	tick(b, 20, 20, 100)
	s.Sync(v, at(40))
	s.Sync(viewOf(b), at(41))
	// The series of GPU-a: histogram, COUNT without xid, a TOTAL per known XID,
	// COUNT and TOTAL per clock reason.
	want := `
# HELP warpgauge_accumulate_rows_total Sampled rows that were read into histograms and event counts.
# TYPE warpgauge_accumulate_rows_total counter
warpgauge_accumulate_rows_total 32
# HELP warpgauge_accumulate_series Histograms and event counts of the devices and fields in service.
# TYPE warpgauge_accumulate_series gauge
warpgauge_accumulate_series 45
# HELP warpgauge_accumulate_states Accumulated states in memory, by whether a device and field in service use them or they wait for their return.
# TYPE warpgauge_accumulate_states gauge
warpgauge_accumulate_states{state="in_use"} 3
warpgauge_accumulate_states{state="kept"} 3
# HELP warpgauge_ring_overruns_total Sampled rows that were overwritten before they were read: histograms and event counts lack them.
# TYPE warpgauge_ring_overruns_total counter
warpgauge_ring_overruns_total 4
`
	if err := testutil.CollectAndCompare(s, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	problems, err := testutil.CollectAndLint(s)
	if err != nil || len(problems) != 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
}

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
