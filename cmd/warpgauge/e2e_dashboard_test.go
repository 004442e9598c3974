//go:build linux && cgo

package main_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/programtest/prometheustest"
)

// What the two dashboards ask for that are known as 12239
// (https://grafana.com/grafana/dashboards/12239 and grafana/ in
// https://github.com/NVIDIA/dcgm-exporter): the same panels, selected by instance
// or also by Hostname; one commit has the engine's share of time for the
// utilisation. The second expression is what a user of dcgm-exporter 4.9 makes of it.
var (
	dashboardPanels = []struct{ title, expr, latest string }{
		{"GPU Temperature", `DCGM_FI_DEV_GPU_TEMP{S}`, `DCGM_FI_DEV_GPU_TEMP_CELSIUS{S}`},
		{"GPU Avg. Temp", `avg(DCGM_FI_DEV_GPU_TEMP{S})`, `avg(DCGM_FI_DEV_GPU_TEMP_CELSIUS{S})`},
		{"GPU Power Usage", `DCGM_FI_DEV_POWER_USAGE{S}`, `DCGM_FI_DEV_BOARD_POWER_WATTS{S}`},
		{"GPU Power Total", `sum(DCGM_FI_DEV_POWER_USAGE{S})`, `sum(DCGM_FI_DEV_BOARD_POWER_WATTS{S})`},
		{"GPU SM Clocks", `DCGM_FI_DEV_SM_CLOCK{S} * 1000000`, `DCGM_FI_DEV_SM_CLOCK_HERTZ{S}`},
		{"GPU Utilization", `DCGM_FI_DEV_GPU_UTIL{S}`, `DCGM_FI_DEV_GPU_UTIL_RATIO{S} * 100`},
		{"GPU Utilization, as of February 2026", `DCGM_FI_PROF_GR_ENGINE_ACTIVE{S}`, `DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO{S}`},
		{"GPU Framebuffer Mem Used", `DCGM_FI_DEV_FB_USED{S}`, `DCGM_FI_DEV_FB_USED_BYTES{S} / 1048576`},
		{tensorPanel, `DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{S}`, `DCGM_FI_PROF_TENSOR_UTIL_RATIO{S}`},
	}
	dashboardSelectors = []struct {
		labels   []string // of the variables
		selector string
	}{
		{[]string{"instance", "gpu"}, `instance=~"$instance", gpu=~"$gpu"`},
		{[]string{"Hostname", "gpu"}, `Hostname=~"$hostname", gpu=~"$gpu"`},
	}
)

// tensorPanel has no data on AMD's GPUs: neither the driver nor ROCm SMI tells it.
const tensorPanel = "Tensor Core Utilization"

// TestE2EDashboards12239 lets a real Prometheus scrape a node of each vendor's
// library and asks it what Grafana would: each variable and each panel, with one
// node chosen in the variable. These have the names of both generations of DCGM; of two
// simulated nodes each has those of one.
func TestE2EDashboards12239(t *testing.T) {
	prometheustest.Find(t)
	exe := build(t)
	etc, err := filepath.Abs("../../etc")
	must(t, err)
	list, amdList := "--collectors="+filepath.Join(etc, "default-counters.csv"), "--collectors="+filepath.Join(etc, "amd-counters.csv")
	nodes := map[string]*exporter{}
	nodes["nvml"] = serve(t, exe, "--field-names=both", "--hostname-label=Hostname", "--enable-only=nvml", "--enable-nvml=true",
		"--nvml-library="+nvmltest.New(t, nvmltest.Config{GPUs: 2}).Library(), "-c", "200", list)
	nodes["dcgm"] = serve(t, exe, "--field-names=both", "--hostname-label=Hostname", "--enable-only=dcgm", "--enable-dcgm=true",
		"--dcgm-library="+dcgmtest.New(t, dcgmtest.Config{GPUs: 2}).Library(), "-c", "200", list)
	script, err := filepath.Abs("../../collectors/rocm/rocmtest/fake-amd-sysfs.sh")
	must(t, err)
	namespaces(t, script)
	amd, _ := serveAMD(t, exe, script, []string{"-n", "2", "-m", "mi300x", "-f", "1.7"}, "--rocm-source=sysfs", "--hostname-label=Hostname", "--field-names=both", amdList)
	nodes["amd"] = amd
	for _, generation := range []string{"old", "new"} {
		nodes[generation] = serve(t, exe, "--field-names="+generation, "--hostname-label=Hostname", "--fake-devices=2", "-c", "200", list)
	}

	var config strings.Builder
	config.WriteString("global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n")
	for name, e := range nodes {
		fmt.Fprintf(&config, "- {job_name: %s, static_configs: [{targets: [%q], labels: {instance: %s}}]}\n", name, strings.TrimPrefix(e.url, "http://"), name)
	}
	server := prometheustest.Start(t, config.String())
	server.Await(t, "two GPUs of each node", len(nodes), `count by (job) (DCGM_FI_DEV_GPU_TEMP or DCGM_FI_DEV_GPU_TEMP_CELSIUS) == 2`)

	for _, s := range dashboardSelectors {
		for _, label := range s.labels {
			eventually.OK(t, "values of the variable "+label, func() error {
				values := labelsOf(t, server, label, "DCGM_FI_DEV_GPU_TEMP")
				if want := map[string]int{"instance": len(nodes) - 1, "gpu": 2, "Hostname": 1}[label]; len(values) != want {
					return fmt.Errorf("%q, want %d", values, want)
				}
				return nil
			})
		}
		for name := range nodes {
			variables := strings.NewReplacer("$instance", name, "$hostname", hostname(t), "$gpu", "(0|1)")
			for _, p := range dashboardPanels {
				if name == "amd" && p.title == tensorPanel {
					continue
				}
				selector := variables.Replace(s.selector)
				if !strings.Contains(selector, "instance") {
					selector += fmt.Sprintf(", instance=%q", name)
				}
				for generation, expr := range map[string]string{"old": p.expr, "new": p.latest} {
					expr = strings.ReplaceAll(expr, "S}", selector+"}")
					want := 2
					if strings.HasPrefix(expr, "avg") || strings.HasPrefix(expr, "sum") {
						want = 1
					}
					if other := map[string]string{"old": "new", "new": "old"}[generation]; name == other {
						want = 0
					}
					server.Await(t, fmt.Sprintf("%s of %s, %s names, chosen by %s", p.title, name, generation, s.labels[0]), want, expr)
				}
			}
		}
	}
	if got := server.Query(t, `DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{job="amd"}`); len(got) != 0 {
		t.Errorf("AMD's GPUs have a value that no library reads: %v", got)
	}
}
