//go:build linux

package main

import (
	"fmt"
	"strings"
	"testing"

	"warpgauge/internal/testkit/programtest/prometheustest"
)

// TestE2EFleetInPrometheus lets a real Prometheus discover and scrape a fleet, in both formats.
func TestE2EFleetInPrometheus(t *testing.T) {
	prometheustest.Find(t)
	address := simulate(t, "--nodes=4", "--profiles=dgx-h100,rtx4090", "--pods-per-gpu=1", "--counters=recommended-counters.csv", "--interval=1s")
	for histograms, flags := range map[string][]string{
		`count(DCGM_FI_DEV_GPU_UTIL_RATIO_count)`: nil, `count(histogram_count(DCGM_FI_DEV_GPU_UTIL_RATIO))`: {"--enable-feature=native-histograms"},
	} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			t.Parallel()
			p := prometheustest.Start(t, fmt.Sprintf(`global: {scrape_interval: 1s, scrape_timeout: 1s}
scrape_configs:
- {job_name: fleet, http_sd_configs: [{url: "http://%s/targets", refresh_interval: 5s}]}
`, address), flags...)
			p.AwaitValue(t, "nodes that are up", 4, `count(up == 1)`)
			p.AwaitValue(t, "nodes with their labels", 4, `count(count by (instance, profile) (up{simulated="true"}))`)
			p.AwaitValue(t, "GPUs", 2*8+2*2, `count(DCGM_FI_DEV_GPU_TEMP{modelName=~".*[(]simulated[)]"})`)
			p.AwaitValue(t, "GPUs with a pod", 2*8+2*2, `count(DCGM_FI_DEV_GPU_TEMP{pod=~"train-.*"})`)
			p.AwaitValue(t, "owners", 2*8+2*2, `count(warpgauge_device_owner)`)
			p.AwaitValue(t, "histograms", 2*8+2*2, histograms)
		})
	}
}
