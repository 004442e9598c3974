package ring

import (
	"fmt"
	"testing"
)

var sizes = []int{20, 100, 800}

func BenchmarkAppend(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprintf("ring/cells=%d", n), func(b *testing.B) {
			r, stamps, cells := Make(64, 1, n), make([]int64, 1), make([]float64, n)
			b.ReportAllocs()
			b.SetBytes(int64(8 * n))
			for b.Loop() {
				r.Append(1, stamps, cells)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/cell")
		})
	}
}

func BenchmarkLatest(b *testing.B) {
	for _, n := range sizes {
		b.Run(fmt.Sprintf("cells=%d", n), func(b *testing.B) {
			r := Make(64, 1, n)
			r.Append(1, make([]int64, 1), make([]float64, n))
			var row Row
			b.ReportAllocs()
			b.SetBytes(int64(8 * n))
			for b.Loop() {
				if !r.Latest(&row) {
					b.Fatal("no row")
				}
			}
		})
	}
}
