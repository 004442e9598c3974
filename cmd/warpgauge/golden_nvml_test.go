//go:build linux && cgo

package main

import (
	"testing"
	"testing/synctest"
	"time"

	"warpgauge/collectors/nvml"
	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/etc"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/collector/collectortest"
	"warpgauge/pkg/field"
)

// nvmlCounters has rows that the shipped CSV files lack.
const nvmlCounters = `
DCGM_FI_DEV_NVLINK_BANDWIDTH_L0, counter, Throughput of a link.
DCGM_FI_PROF_SM_ACTIVE, histogram, Share of time that at least one warp was on an SM.
DCGM_EXP_XID_ERRORS_COUNT, gauge, XIDs within the window.
DCGM_EXP_CLOCK_EVENTS_TOTAL, counter, Clock events since start.
DCGM_EXP_GPU_HEALTH_STATUS, gauge, Health by watch., interval=1s
DCGM_EXP_P2P_STATUS, gauge, Reachability of peers.
`

// TestGoldenNVML renders nodes simulated below NVML: everything from the library's symbols to the
// page is the code of a real node.
func TestGoldenNVML(t *testing.T) {
	for _, node := range []struct {
		name   string
		config nvmltest.Config
		fields field.List
	}{
		{"nvml-dgx-h100", nvmltest.Config{}, countersList(t, string(etc.DefaultCounters()))},
		{"nvml-dgx-h100-all", nvmltest.Config{GPUs: 1}, field.List{Fields: collectortest.Fields().Metrics()}},
		{"nvml-a100-mig", nvmltest.Config{Preset: "a100-mig", GPUs: 4}, countersList(t, string(etc.DefaultCounters()), shipped(t, "dcp-metrics-included.csv"), nvmlCounters)},
	} {
		t.Run(node.name, func(t *testing.T) {
			n := nvmltest.New(t, node.config)
			n.Freeze(3600)
			for gpu := range n.GPUs() {
				n.SetLoad(gpu, nvmltest.Steady(float64(n.GPUs()-gpu)/float64(n.GPUs())))
			}
			var text []byte
			synctest.Test(t, func(t *testing.T) {
				factory := func() collector.Collector { return nvml.New(nvml.Options{Library: n.Library(), Root: n.Root()}) }
				text, _, _ = simulate(t, factory, node.fields, func(second int) {
					n.Advance(time.Second)
					if second == 3 {
						n.XID(n.GPUs()-1, 94)
						for _, in := range n.Instances(0) {
							n.InstanceXID(0, 43, uint32(in.GI), uint32(in.CI))
						}
					}
				})
			})
			checkGolden(t, node.name+".prom", text)
			lint(t, text)
		})
	}
}
