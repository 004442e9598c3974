package accumulate

import (
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestMetricsBesideSync is for the race detector.
func TestMetricsBesideSync(t *testing.T) {
	b := newBoard(16, "GPU-a")
	s, read := newStore()
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(s)
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 200 {
			if _, err := reg.Gather(); err != nil {
				t.Error(err)
			}
			_ = s.reader.Overruns()
		}
	})
	for i := range 500 {
		tick(b, i, 1, 100)
		read(viewOf(b), at(float64(i)))
	}
	wg.Wait()
}
