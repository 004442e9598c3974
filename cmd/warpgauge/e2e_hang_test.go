package main_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"warpgauge/internal/testkit/eventually"
)

// hungGPU is the one that stops answering in the tests with a hang.
const hungGPU = "3"

// testHungGPU lets one GPU hang for ever: its state says so, its series leave the
// page, and the other seven stay fresh all the while.
func testHungGPU(t *testing.T, exe string) {
	fault, spec := hang(t)
	e := serve(t, exe, "--collect-interval=100", "--sample-deadline=500ms", "--stale-after=2s", spec)
	eventually.OK(t, "a page with 8 GPUs", func() error { return eightGPUs(e.scrape(t, acceptText)) })

	fault.begin(t)
	eventually.OK(t, "the hung GPU's state", func() error {
		p := e.scrape(t, acceptText)
		return errors.Join(
			p.want(1, "warpgauge_device_state", "gpu", hungGPU, "state", "stalled"),
			p.want(1, "warpgauge_device_problem", "gpu", hungGPU, "cause", "hung_call"))
	})
	var p page
	eventually.OK(t, "the hung GPU to leave the page", func() error {
		p = e.scrape(t, acceptText)
		if n := len(p.family("DCGM_FI_DEV_GPU_TEMP")); n != 7 {
			return fmt.Errorf("%d GPUs on the page, want 7", n)
		}
		return nil
	})
	for _, s := range p.samples {
		if isDCGM(s.name()) && s.get("gpu") == hungGPU {
			t.Errorf("%v of the hung GPU is still on the page", s.labels)
		}
	}
	eventually.OK(t, "the age of the hung GPU's sample to say so", func() error {
		age, err := e.scrape(t, acceptText).one("warpgauge_sample_age_seconds", "gpu", hungGPU)
		if err == nil && age < 2 {
			err = fmt.Errorf("%v s, want at least --stale-after", age)
		}
		return err
	})
	testOthersAdvance(t, e)
}

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
