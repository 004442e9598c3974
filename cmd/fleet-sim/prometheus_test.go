//go:build linux

package main

import (
	"fmt"
	"path/filepath"
	"testing"

	"warpgauge/internal/testkit/programtest/prometheustest"
)

// startPrometheus lets Prometheus find the fleet by HTTP or by a file.
func startPrometheus(t *testing.T, discovery, interval string, native bool) *prometheustest.Server {
	t.Helper()
	config := fmt.Sprintf("global: {scrape_interval: %s, scrape_timeout: %s}\nscrape_configs:\n- {job_name: fleet, %s}\n", interval, interval, discovery)
	if native {
		return prometheustest.Start(t, config, "--enable-feature=native-histograms")
	}
	return prometheustest.Start(t, config)
}

// TestE2EFleetInPrometheus lets a real Prometheus discover and scrape a fleet, in both ways
// and both formats.
func TestE2EFleetInPrometheus(t *testing.T) {
	prometheustest.Find(t)
	file := filepath.Join(t.TempDir(), "targets.json")
	address := simulate(t, "--nodes=4", "--profiles=dgx-h100,rtx4090", "--pods-per-gpu=1", "--targets-file="+file,
		"--counters=recommended-counters.csv", "--interval=1s")
	f := func(discovery string, native bool) {
		t.Run(fmt.Sprintf("native=%v", native), func(t *testing.T) {
			t.Parallel()
			p := startPrometheus(t, discovery, "1s", native)
			p.AwaitValue(t, "nodes that are up", 4, `count(up == 1)`)
			p.AwaitValue(t, "nodes with their labels", 4, `count(count by (instance, profile) (up{simulated="true"}))`)
			p.AwaitValue(t, "GPUs", 2*8+2*2, `count(DCGM_FI_DEV_GPU_TEMP{modelName=~".*[(]simulated[)]"})`)
			p.AwaitValue(t, "GPUs with a pod", 2*8+2*2, `count(DCGM_FI_DEV_GPU_TEMP{pod=~"train-.*"})`)
			p.AwaitValue(t, "owners", 2*8+2*2, `count(warpgauge_device_owner)`)
			histograms := `count(DCGM_FI_DEV_GPU_UTIL_RATIO_count)`
			if native {
				histograms = `count(histogram_count(DCGM_FI_DEV_GPU_UTIL_RATIO))`
			}
			p.AwaitValue(t, "histograms", 2*8+2*2, histograms)
		})
	}
	f(fmt.Sprintf(`http_sd_configs: [{url: "http://%s/targets", refresh_interval: 5s}]`, address), false)
	f(fmt.Sprintf(`file_sd_configs: [{files: [%q]}]`, file), true)
}
