//go:build linux && cgo

package nvml

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/collector/collectortest"
	"warpgauge/pkg/field"
)

// TestConformance runs the suite of the contract on the simulated library, which
// the collector loads and calls as it would a driver's.
func TestConformance(t *testing.T) {
	for name, config := range map[string]nvmltest.Config{
		"DGX H100": {GPUs: 3},
		"A100 MIG": {Preset: "a100-sxm", GPUs: 2, MIG: map[int][]string{0: {"1g.5gb", "3g.20gb"}, 1: {"7g.40gb"}}},
	} {
		t.Run(name, func(t *testing.T) {
			collectortest.Run(t, collectortest.Harness{
				Name: "nvml", Allocates: true,
				New: func(tb testing.TB) collectortest.Rig { return newRig(tb, nvmltest.New(tb, config)) },
			})
		})
	}
}

// witness remembers what the sources of a rig's collectors are.
type witness struct {
	*Collector
	rig *rig
}

func (w *witness) Open(ctx context.Context, fields field.List) ([]collector.Source, error) {
	sources, err := w.Collector.Open(ctx, fields)
	for _, s := range sources {
		w.rig.met(s.Devices())
	}
	return sources, err
}

// rig is the simulated node of a subtest.
type rig struct {
	node *nvmltest.Node

	mu      sync.Mutex
	devices map[string]collector.Device
}

func (r *rig) met(devices []collector.Device) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range devices {
		r.devices[d.ID] = d
	}
}

// gpu returns the index of the board that a device is or is part of, and its UUID.
func (r *rig) gpu(tb testing.TB, id string) (index int, uuid string) {
	tb.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	d, ok := r.devices[id]
	if !ok {
		tb.Fatalf("no source has device %q", id)
	}
	index, err := strconv.Atoi(d.GPU)
	if err != nil {
		tb.Fatal(err)
	}
	return index, d.UUID
}

func newRig(tb testing.TB, node *nvmltest.Node) collectortest.Rig {
	r := &rig{node: node, devices: map[string]collector.Device{}}
	return collectortest.Rig{
		Factory: func() collector.Collector {
			return &witness{New(Options{Library: node.Library(), Root: node.Root(), Patience: 2 * time.Second}), r}
		},
		LoseDevice:    func(id string) { gpu, _ := r.gpu(tb, id); node.Lose(gpu) },
		RestoreDevice: func(id string) { gpu, _ := r.gpu(tb, id); node.Restore(gpu) },
		Hang:          func(id string) func() { gpu, _ := r.gpu(tb, id); return node.Hang(gpu, nvmltest.Every) },
		ChangeColumns: func() { node.SetMIG(0, "1g.10gb", "1g.10gb") },
		FailOpen:      func() func() { node.Unload(); return func() { node.LoadDriver("") } },
		RaiseEvent: func(id string, _ field.ID, value float64) {
			gpu, _ := r.gpu(tb, id)
			node.XID(gpu, uint64(value))
		},
	}
}
