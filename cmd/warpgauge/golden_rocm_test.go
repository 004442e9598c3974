package main

import (
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"warpgauge/collectors/rocm"
	"warpgauge/collectors/rocm/rocmtest"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/field"
)

// TestGoldenPagesOfAMD samples simulated /sys trees, whose values change each second, and compares
// the page with every row of AMD's list, enabled or not. Rewrite with -update.
func TestGoldenPagesOfAMD(t *testing.T) {
	rows := regexp.MustCompile(`(?m)^# (DCGM_|amd_gpu_)`).ReplaceAllString(shipped(t, "amd-counters.csv"), "$1") // commented-out rows
	list := countersList(t, strings.ReplaceAll(rows, "interval=30s", "interval=2s"))
	for name, o := range map[string]rocmtest.Options{
		"rocm-mi250x":     {Model: rocmtest.MI250X, Deferred: true},
		"rocm-mi300x":     {Model: rocmtest.MI300X, Metrics: "1.7"},
		"rocm-mi300x-dpx": {Model: rocmtest.MI300X, Metrics: "1.8", Partition: "DPX", Memory: "NPS1", GPUs: 1},
		"rocm-radeon":     {Model: rocmtest.RX7900, GPUs: 1},
	} {
		t.Run(name, func(t *testing.T) {
			tree := rocmtest.NewTree(t, o)
			if o.Model == rocmtest.MI250X || o.Model == rocmtest.RX7900 {
				for _, g := range tree.GPUs { // it has its own schedule, so it may be from any second
					g.Set(t, "pcie_bw", "3000 7000 256\n")
				}
			}
			tree.Start(t, rocmtest.Process{PID: 4711, Uses: []rocmtest.Use{{VRAM: 3 << 30, CUs: 19}}})
			var page []byte
			synctest.Test(t, func(t *testing.T) { page = sampleTree(t, tree, list) })
			checkGolden(t, name+".prom", page)
			lint(t, page)
		})
	}
}

// sampleTree returns the page after ten seconds. The values change every second.
func sampleTree(t *testing.T, tree *rocmtest.Tree, list field.List) (page []byte) {
	factory := func() collector.Collector { return rocm.New(rocm.Options{Root: tree.Root, Source: rocm.SourceSysfs}) }
	runNode(t, factory, list, func(r *exposition.Renderer) {
		for range 10 { // the one or two sources sample in the middle third of a second
			time.Sleep(time.Second)
			tree.Step(t, time.Second)
		}
		synctest.Wait()
		page = r.Page(exposition.Text, false)
	})
	return page
}
