package ring

import (
	"fmt"
	"sync"
	"testing"
)

// The plain rivals: a slice under a mutex, and a channel of copied rows.

type locked struct {
	mu    sync.Mutex
	time  int64
	cells []float64
}

func (l *locked) append(t int64, cells []float64) {
	l.mu.Lock()
	l.time = t
	copy(l.cells, cells)
	l.mu.Unlock()
}

func (l *locked) latest(dst []float64) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	copy(dst, l.cells)
	return l.time
}

var sizes = []int{20, 100, 800}

func BenchmarkAppend(b *testing.B) {
	for _, n := range sizes {
		cells := make([]float64, n)
		stamps := make([]int64, 1)
		report := func(b *testing.B) {
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/cell")
		}
		b.Run(fmt.Sprintf("ring/cells=%d", n), func(b *testing.B) {
			r := Make(64, 1, n)
			b.ReportAllocs()
			b.SetBytes(int64(8 * n))
			for b.Loop() {
				r.Append(1, stamps, cells)
			}
			report(b)
		})
		b.Run(fmt.Sprintf("mutex/cells=%d", n), func(b *testing.B) {
			l := &locked{cells: make([]float64, n)}
			b.ReportAllocs()
			b.SetBytes(int64(8 * n))
			for b.Loop() {
				l.append(1, cells)
			}
			report(b)
		})
		b.Run(fmt.Sprintf("channel/cells=%d", n), func(b *testing.B) {
			c := make(chan []float64, 64)
			done := make(chan struct{})
			go func() {
				defer close(done)
				for range c {
				}
			}()
			b.ReportAllocs()
			b.SetBytes(int64(8 * n))
			for b.Loop() {
				c <- append([]float64(nil), cells...)
			}
			report(b)
			close(c)
			<-done
		})
	}
}

// BenchmarkAppendWhileRead measures the writer while readers copy the latest row
// without pause: the mutex makes it wait for them, the ring does not.
func BenchmarkAppendWhileRead(b *testing.B) {
	const n = 100
	cells, stamps := make([]float64, n), make([]int64, 1)
	run := func(b *testing.B, read func(stop <-chan struct{}), write func()) {
		stop := make(chan struct{})
		var readers sync.WaitGroup
		for range 4 {
			readers.Go(func() { read(stop) })
		}
		for b.Loop() {
			write()
		}
		close(stop)
		readers.Wait()
	}
	stopped := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	b.Run("ring", func(b *testing.B) {
		r := Make(64, 1, n)
		run(b, func(stop <-chan struct{}) {
			var row Row
			for !stopped(stop) {
				r.Latest(&row)
			}
		}, func() { r.Append(1, stamps, cells) })
	})
	b.Run("mutex", func(b *testing.B) {
		l := &locked{cells: make([]float64, n)}
		run(b, func(stop <-chan struct{}) {
			dst := make([]float64, n)
			for !stopped(stop) {
				l.latest(dst)
			}
		}, func() { l.append(1, cells) })
	})
}
