//go:build linux && cgo

package main_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/programtest"
	"warpgauge/internal/testkit/programtest/prometheustest"
)

// dashboardPanels are the queries of the two Grafana dashboards known as 12239 (https://grafana.com/grafana/dashboards/12239
// and grafana/ in https://github.com/NVIDIA/dcgm-exporter). latest is the same query with the names of dcgm-exporter 4.9.
var dashboardPanels = []struct{ title, expr, latest string }{
	{"GPU Temperature", `DCGM_FI_DEV_GPU_TEMP{S}`, `DCGM_FI_DEV_GPU_TEMP_CELSIUS{S}`},
	{"GPU Avg. Temp", `avg(DCGM_FI_DEV_GPU_TEMP{S})`, `avg(DCGM_FI_DEV_GPU_TEMP_CELSIUS{S})`},
	{"GPU Power Usage", `DCGM_FI_DEV_POWER_USAGE{S}`, `DCGM_FI_DEV_BOARD_POWER_WATTS{S}`},
	{"GPU Power Total", `sum(DCGM_FI_DEV_POWER_USAGE{S})`, `sum(DCGM_FI_DEV_BOARD_POWER_WATTS{S})`},
	{"GPU SM Clocks", `DCGM_FI_DEV_SM_CLOCK{S} * 1000000`, `DCGM_FI_DEV_SM_CLOCK_HERTZ{S}`},
	{"GPU Utilization", `DCGM_FI_DEV_GPU_UTIL{S}`, `DCGM_FI_DEV_GPU_UTIL_RATIO{S} * 100`},
	{"GPU Utilization, since February 2026", `DCGM_FI_PROF_GR_ENGINE_ACTIVE{S}`, `DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO{S}`},
	{"GPU Framebuffer Mem Used", `DCGM_FI_DEV_FB_USED{S}`, `DCGM_FI_DEV_FB_USED_BYTES{S} / 1048576`},
	{"Tensor Core Utilization", `DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{S}`, `DCGM_FI_PROF_TENSOR_UTIL_RATIO{S}`},
}

// TestE2EDashboards12239 runs each panel's query on a Prometheus that scrapes one node per library. The nodes export
// the names of both generations of DCGM, except two simulated nodes that export one generation each.
func TestE2EDashboards12239(t *testing.T) {
	t.Parallel()
	prometheustest.Find(t)
	exe := build(t)
	hostname, err := os.Hostname()
	must(t, err)
	list := testkit.Get(filepath.Abs("../../etc/default-counters.csv"))(t)
	start := func(command []string, names string, args ...string) *exporter {
		return serveBy(t, command, append(args, "--field-names="+names, "--hostname-label=Hostname", "-c", "200", "-f", list)...)
	}
	plain, amd := []string{exe}, onAMD(t, filepath.Join(t.TempDir(), "tree"), "2", exe)
	nodes := map[string]*exporter{
		"nvml": start(plain, "both", "--enable-only=nvml", "--enable-nvml=true", "--nvml-library="+nvmltest.New(t, nvmltest.Config{GPUs: 2}).Library()),
		"dcgm": start(plain, "both", "--enable-only=dcgm", "--enable-dcgm=true", "--dcgm-library="+dcgmtest.New(t, dcgmtest.Config{GPUs: 2}).Library()),
		"amd":  start(amd, "both", "--enable-only=rocm", "--enable-rocm=true", "--rocm-source=sysfs"),
		"old":  start(plain, "old", "--fake-devices=2"),
		"new":  start(plain, "new", "--fake-devices=2"),
	}
	var config strings.Builder
	config.WriteString("global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n")
	for name, e := range nodes {
		fmt.Fprintf(&config, "- {job_name: %s, static_configs: [{targets: [%q], labels: {instance: %s}}]}\n", name, strings.TrimPrefix(e.url, "http://"), name)
	}
	server := prometheustest.Start(t, config.String())
	server.Await(t, "two GPUs of each node", len(nodes), `count by (job) (DCGM_FI_DEV_GPU_TEMP or DCGM_FI_DEV_GPU_TEMP_CELSIUS) == 2`)
	for label, want := range map[string]int{"instance": len(nodes) - 1, "gpu": 2, "Hostname": 1} {
		server.Await(t, "values of the variable "+label, want, fmt.Sprintf("count by (%s) (DCGM_FI_DEV_GPU_TEMP)", label))
	}
	for name := range nodes {
		for _, selector := range []string{`instance=~"%[1]s", gpu=~"(0|1)"`, `Hostname=~"%[2]s", gpu=~"(0|1)", job="%[1]s"`} {
			selector = fmt.Sprintf(selector, name, hostname)
			for _, p := range dashboardPanels {
				for names, expr := range map[string]string{"old": p.expr, "new": p.latest} {
					want := 2
					switch {
					case name == "new" && names == "old", name == "old" && names == "new":
						want = 0
					case name == "amd" && strings.HasPrefix(p.title, "Tensor"): // no AMD library reports it
						want = 0
					case strings.HasPrefix(expr, "avg"), strings.HasPrefix(expr, "sum"):
						want = 1
					}
					server.Await(t, fmt.Sprintf("%s of %s, %s names, {%s}", p.title, name, names, selector), want, strings.ReplaceAll(expr, "S}", selector+"}"))
				}
			}
		}
	}
}

// onAMD returns the command that runs exe with simulated GPUs in /sys, whose files are in tree. The simulation ends with
// the test.
func onAMD(t *testing.T, tree, gpus, exe string) []string {
	t.Helper()
	script := testkit.Get(filepath.Abs("../../collectors/rocm/rocmtest/fake-amd-sysfs.sh"))(t)
	if out, err := exec.CommandContext(t.Context(), "bash", script, "-n", "1", "--", "true").CombinedOutput(); err != nil { // in most containers
		programtest.Missing(t, "unshare", "no mount namespace for %s: %v: %s", filepath.Base(script), err, out)
	}
	t.Cleanup(func() { // what moves the values ends a little after the command, and has its arguments
		eventually.OK(t, "the end of the simulation", func() error {
			commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
			for _, path := range commands {
				if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte("\x00"+tree+"\x00")) {
					return fmt.Errorf("%s: %q", path, text)
				}
			}
			return err
		})
	})
	return []string{"bash", script, "-n", gpus, "-m", "mi300x", "-f", "1.7", "-i", "50", "-t", tree, "--", exe}
}
