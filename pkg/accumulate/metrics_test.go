package accumulate

import (
	"sync"
	"testing"

	"warpgauge/internal/testkit"

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
			_, err := reg.Gather()
			testkit.ErrorIf(t, err != nil, "%v", err)
			_ = s.reader.Overruns()
		}
	})
	for i := range 500 {
		tick(b, i, 1, 100)
		read(viewOf(b), at(float64(i)))
	}
	wg.Wait()
}
