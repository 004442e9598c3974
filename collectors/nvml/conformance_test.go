//go:build linux && cgo

package nvml

import (
	"strings"
	"testing"
	"time"

	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/collector/collectortest"
	"warpgauge/pkg/field"
)

// TestConformance runs the contract's suite on the simulated library, which the collector loads and calls like a driver's.
func TestConformance(t *testing.T) {
	for name, config := range map[string]nvmltest.Config{
		"DGX H100": {GPUs: 3},
		"A100 MIG": {Preset: "a100-sxm", GPUs: 2, MIG: map[int][]string{0: {"1g.5gb", "3g.20gb"}, 1: {"7g.40gb"}}},
	} {
		t.Run(name, func(t *testing.T) {
			collectortest.Run(t, collectortest.Harness{
				Name: "nvml", Allocates: true,
				New: func(tb testing.TB) collectortest.Rig { return newRig(nvmltest.New(tb, config)) },
			})
		})
	}
}

func newRig(n *nvmltest.Node) collectortest.Rig {
	gpu := func(id string) int { // the index of a device's board
		i := 0
		for !strings.HasPrefix(id, nvmltest.UUID(i)) {
			i++
		}
		return i
	}
	return collectortest.Rig{
		Factory: func() collector.Collector {
			return New(Options{Library: n.Library(), Root: n.Root(), Patience: 2 * time.Second})
		},
		LoseDevice:    func(id string) { n.Lose(gpu(id)) },
		RestoreDevice: func(id string) { n.Restore(gpu(id)) },
		Hang:          func(id string) func() { return n.Hang(gpu(id), nvmltest.Every) },
		ChangeColumns: func() { n.SetMIG(0, "1g.10gb", "1g.10gb") },
		FailOpen:      func() func() { n.Unload(); return func() { n.LoadDriver("") } },
		RaiseEvent:    func(id string, _ field.ID, value float64) { n.XID(gpu(id), uint64(value)) },
	}
}
