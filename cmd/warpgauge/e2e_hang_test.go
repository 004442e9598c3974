package main_test

import (
	"fmt"
	"testing"
	"time"

	"warpgauge/internal/testkit/eventually"
)

// hungGPU is the one that stops answering in the tests with a hang.
const hungGPU = "3"

// testOthersAdvance takes pages until each of the seven other GPUs has had
// three further energy readings, a counter that grows with every sample.
func testOthersAdvance(t *testing.T, e *exporter) {
	t.Helper()
	last := map[string]float64{}
	steps := map[string]int{}
	begin := time.Now()
	eventually.OK(t, "new values of the other GPUs", func() error {
		p := e.scrape(t, acceptText)
		now := p.values("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")
		if len(now) != 7 {
			t.Fatalf("%d GPUs on the page while one hangs, want 7 on every page", len(now))
		}
		behind := ""
		for gpu, v := range now {
			if v < last[gpu] {
				t.Fatalf("energy of GPU %s went back from %v to %v", gpu, last[gpu], v)
			}
			if v > last[gpu] {
				steps[gpu]++
			}
			last[gpu] = v
			if steps[gpu] < 4 { // the first is the start
				behind = gpu
			}
		}
		if behind != "" {
			return fmt.Errorf("GPU %s had %d values in %v", behind, steps[behind], time.Since(begin))
		}
		return nil
	})
	t.Logf("three further values of each of the other seven within %v at a tick of 100 ms", time.Since(begin))
}
