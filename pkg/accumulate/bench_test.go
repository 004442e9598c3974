package accumulate

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"warpgauge/internal/testkit"
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

// BenchmarkObserve compares one observation with client_golang's, with the same classic and native buckets.
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
		testkit.FatalIf(b, h.Count != uint64(i), "count %d after %d observations", h.Count, i)
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
}
