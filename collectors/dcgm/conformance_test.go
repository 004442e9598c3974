//go:build linux && cgo

package dcgm

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"sync"
	"testing"

	"warpgauge/internal/testkit/eventually"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/collector/collectortest"
	"warpgauge/pkg/field"
)

// TestConformance runs the contract's suite on the simulated library and on NVIDIA's engine. No board can hang alone,
// because the whole engine hangs: see TestEngineFallsSilent and TestDriverHangs. The rig's hooks wait until the engine has
// noticed the change. The list for NVIDIA's engine has no health field: the engine soon reports that the simulated power
// is at its limit, and each new reason needs a new Open (TestHealthJudged).
func TestConformance(t *testing.T) {
	for kind, newMachine := range map[string]func(testing.TB, hardware) machine{"simulated": newSimulated, "NVIDIA": newReal} {
		for name, h := range map[string]hardware{
			"host engine": {gpus: 3}, "TCP": {gpus: 2, tcp: true}, "embedded": {gpus: 2, embedded: true}, "MIG": {gpus: 2, mig: []string{"1g", "2g", "3g/2"}},
		} {
			if kind == "simulated" && !h.embedded && h.mig == nil {
				continue // MIG needs a host engine, and the simulation has no transports
			}
			fields := collectortest.Fields()
			if kind == "NVIDIA" {
				fields.Fields = slices.DeleteFunc(fields.Fields, func(f field.Field) bool { return f.Desc.ID == field.GPUHealth })
			}
			t.Run(kind+" "+name, func(t *testing.T) {
				collectortest.Run(t, collectortest.Harness{
					Name: "dcgm", Fields: fields, New: func(tb testing.TB) collectortest.Rig { return newRig(tb, newMachine(tb, h), h) },
				})
			})
		}
	}
}

func newRig(tb testing.TB, m machine, h hardware) collectortest.Rig {
	r := &rig{read: m.simulation() == nil}
	noticed := func(change func(), wait func(c *opened)) {
		if m.simulation() != nil { // the simulated engine notices a change at the next call
			change()
			return
		}
		c := second(tb, m)
		change()
		wait(c)
	}
	out := collectortest.Rig{
		Factory: func() collector.Collector { return &witness{New(m.options()), r} },
		LoseDevice: func(id string) {
			noticed(func() { m.lose(r.gpu(tb, id)) }, func(c *opened) {
				c.until(tb, 0, "a lost GPU", func(err error) bool { return errors.Is(err, collector.ErrDeviceLost) })
			})
		},
		RestoreDevice: func(id string) {
			m.restore(r.gpu(tb, id))
			if m.simulation() == nil {
				eventually.OK(tb, "the GPU again", func() error { return alive(tb, m, id) })
			}
		},
		ChangeColumns: func() {
			noticed(func() { m.setMIG(0, "1g", "1g") }, func(c *opened) { c.untilRescan(tb) })
		},
	}
	if !h.embedded {
		out.FailOpen = func() func() { m.stop(); return m.start }
	}
	if m.simulation() != nil {
		out.RaiseEvent = func(id string, _ field.ID, value float64) { m.xid(r.gpu(tb, id), int(value)) }
		return out
	}
	open1(tb, m.options(), "DCGM_FI_DEV_SM_CLOCK") // keeps a connection open, because NVIDIA's library closes its socket late
	return out
}

// alive returns nil if a new collector reads the temperature of a GPU.
func alive(tb testing.TB, m machine, id string) error {
	tb.Helper()
	c, err := openBriefly(tb, m.options(), temperature)
	if err != nil {
		return err
	}
	defer c.close(tb)
	if err := c.sample(0); err != nil {
		return err
	}
	there := slices.ContainsFunc(devices(c), func(d collector.Device) bool { return d.ID == id })
	if !there || !c.has(tb, id, temperature) {
		return errNotYet
	}
	return nil
}

// second opens a collector with every field of the tested one. It shows when the engine has noticed a change.
func second(tb testing.TB, m machine) *opened {
	tb.Helper()
	c, err := openBriefly(tb, m.options(), everything()...)
	must(tb, err)
	tb.Cleanup(func() { c.close(tb) })
	_ = c.sample(0)
	return c
}

// witness records the sources of a rig's collectors.
type witness struct {
	*Collector
	rig *rig
}

func (w *witness) Open(ctx context.Context, fields field.List) ([]collector.Source, error) {
	sources, err := w.Collector.Open(ctx, fields)
	w.rig.mu.Lock()
	defer w.rig.mu.Unlock()
	for _, s := range sources {
		w.rig.devices = append(w.rig.devices, s.Devices()...)
		if n := len(s.Columns()); w.rig.read {
			_ = s.Sample(slices.Repeat([]float64{math.NaN()}, n), slices.Repeat([]bool{true}, n))
		}
	}
	return sources, err
}

type rig struct {
	read bool // sample after Open: NVIDIA's engine cannot report the loss of a GPU that never had values

	mu      sync.Mutex
	devices []collector.Device
}

// gpu returns the number of a device's GPU.
func (r *rig) gpu(tb testing.TB, id string) int {
	tb.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.devices, func(d collector.Device) bool { return d.ID == id })
	if i < 0 {
		tb.Fatalf("no source has device %q", id)
	}
	n, err := strconv.Atoi(r.devices[i].GPU)
	must(tb, err)
	return n
}
