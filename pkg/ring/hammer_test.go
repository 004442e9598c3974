package ring

import (
	"sync"
	"testing"

	"warpgauge/internal/testkit"
)

// TestHammer writes at full speed into the smallest ring, which laps its readers all the time. The readers
// check that every row is whole, in order and counted. Run it under the race detector.
func TestHammer(t *testing.T) {
	const rows = 20_000
	for _, size := range []int{2, 64} {
		r := Make(size, 3, 29)
		start := make(chan struct{})
		done := make(chan struct{})
		var readers sync.WaitGroup
		for range 4 {
			readers.Go(func() {
				<-start
				var row Row
				last := uint64(0)
				for {
					if r.Latest(&row) {
						if !check(t, &row, row.N) || row.N < last {
							t.Errorf("latest went from row %d to %d", last, row.N)
							return
						}
						last = row.N
					}
					select {
					case <-done:
						return
					default:
					}
				}
			})
			f := r.Follow()
			readers.Go(func() {
				<-start
				var row Row
				var seen, next uint64
				take := func() bool {
					for f.Next(&row) {
						if !check(t, &row, row.N) || row.N < next {
							t.Errorf("follower got row %d after %d", row.N, next)
							return false
						}
						next = row.N + 1
						seen++
					}
					return true
				}
				for ended := false; !ended; {
					select {
					case <-done:
						ended = true
					default:
					}
					if !take() {
						return
					}
				}
				testkit.ErrorIf(t, seen+f.Overruns() != rows, "follower saw %d rows and counted %d overruns, together not %d", seen, f.Overruns(), rows)
			})
		}
		close(start)
		stamps, cells := make([]int64, 3), make([]float64, 29)
		for n := range uint64(rows) {
			fill(n, stamps, cells)
			r.Append(int64(n), stamps, cells)
		}
		close(done)
		readers.Wait()
	}
}
