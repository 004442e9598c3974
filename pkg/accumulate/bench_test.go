package accumulate

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warpgauge/pkg/field"
)

// benchField has as many classic buckets as client_golang's default.
func benchField() *field.Field {
	return &field.Field{Desc: descPower, Scale: 1, Buckets: []float64{50, 75, 100, 150, 200, 250, 300, 350, 400, 500, 700}}
}

// benchValues is a load that moves through many buckets.
func benchValues() (v [1024]float64) {
	for i := range v {
		v[i] = float64(60 + i*7919%640)
	}
	return v
}

// BenchmarkObserve is one observation: ours, client_golang's with the same
// classic and native buckets, and keeping the raw value under a lock for a
// scrape to work on.
func BenchmarkObserve(b *testing.B) {
	values := benchValues()
	b.Run("accumulate", func(b *testing.B) {
		h := newHistogram(benchField())
		i := 0
		b.ReportAllocs()
		for b.Loop() {
			h.observe(values[i&1023], 1)
			i++
		}
		if h.Count != uint64(i) {
			b.Fatalf("count %d after %d observations", h.Count, i)
		}
	})
	for name, native := range map[string]bool{"client_golang_classic": false, "client_golang_native": true} {
		b.Run(name, func(b *testing.B) {
			o := prometheus.HistogramOpts{Name: "h", Buckets: benchField().Buckets}
			if native {
				o.NativeHistogramBucketFactor = 1.1
			}
			h := prometheus.NewHistogram(o)
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				h.Observe(values[i&1023])
				i++
			}
		})
	}
	b.Run("mutex_slice", func(b *testing.B) {
		var mu sync.Mutex
		kept := make([]float64, 0, 1024)
		i := 0
		b.ReportAllocs()
		for b.Loop() {
			mu.Lock()
			if len(kept) == cap(kept) { // a scrape takes them away
				kept = kept[:0]
			}
			kept = append(kept, values[i&1023])
			mu.Unlock()
			i++
		}
	})
}

// BenchmarkSync is one tick of a node: a row from each source, each with one
// histogram, clock events and XIDs per device, and a Sync.
func BenchmarkSync(b *testing.B) {
	for _, devices := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("devices=%d", devices), func(b *testing.B) {
			boards := make([]*board, devices)
			for i := range boards {
				boards[i] = newBoard(64, fmt.Sprintf("GPU-%d", i))
				*boards[i].cell(0, cellClocks) = 4
			}
			v := viewOf(boards...)
			s := New(Options{})
			values := benchValues()
			now := start
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(time.Second)
				for _, d := range boards {
					*d.cell(0, cellPower) = values[n&1023]
					d.row(now)
				}
				s.Sync(v, now)
				n++
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n*devices), "ns/row")
			if s.Overruns() != 0 || s.rows != uint64(n*devices) {
				b.Fatalf("%d rows and %d overruns after %d ticks", s.rows, s.Overruns(), n)
			}
		})
	}
}
