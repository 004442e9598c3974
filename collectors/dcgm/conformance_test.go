//go:build linux && cgo

package dcgm

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/collector/collectortest"
	"warpgauge/pkg/field"
)

// TestConformance runs the contract's suite on the simulated library and on NVIDIA's engine. Boards hang only together:
// see TestEngineFallsSilent and TestDriverHangs. The rig's hooks wait until the engine notices the change. NVIDIA's list
// has no health field: the engine soon reports the simulated power, and each new reason needs a new Open.
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
	nvidia := m.simulation() == nil
	r := &rig{read: nvidia}
	// noticed changes the machine and waits for its engine. The simulated engine notices a change at the next call.
	noticed := func(change func(), wait func(c *opened)) {
		if !nvidia {
			change()
			return
		}
		c, release := r.collector(tb, m)
		defer release()
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
			switch {
			case !nvidia:
			case r.open != nil:
				r.open.until(tb, 0, "the GPU again", func(err error) bool { return err == nil || errors.Is(err, collector.ErrColumnsChanged) })
			default:
				eventually.OK(tb, "the GPU again", func() error { return alive(tb, m, id) })
			}
		},
		ChangeColumns: func() {
			noticed(func() { m.setMIG(0, "1g", "1g") }, func(c *opened) { c.untilRescan(tb) })
		},
	}
	if !nvidia {
		out.RaiseEvent = func(id string, _ field.ID, value float64) { m.xid(r.gpu(tb, id), int(value)) }
	}
	if !h.embedded {
		out.FailOpen = func() func() { m.stop(); return m.start }
		if nvidia {
			open1(tb, m.options(), "DCGM_FI_DEV_SM_CLOCK") // keeps a connection open, because NVIDIA's library closes its socket late
		}
	}
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

// collector returns the open collector, or opens one until release: a process can have only one embedded engine.
func (r *rig) collector(tb testing.TB, m machine) (c *opened, release func()) {
	tb.Helper()
	if r.open != nil {
		return r.open, func() {}
	}
	c = testkit.Get(openBriefly(tb, m.options(), everything()...))(tb)
	_ = c.sample(0)
	return c, func() { c.close(tb) }
}

// witness records the sources of a rig's collectors.
type witness struct {
	*Collector
	rig *rig
}

func (w *witness) Open(ctx context.Context, fields field.List) ([]collector.Source, error) {
	sources, err := w.Collector.Open(ctx, fields)
	if err != nil {
		return sources, err
	}
	w.rig.open = &opened{Collector: w.Collector}
	w.rig.open.hold(sources)
	for i, s := range sources {
		w.rig.devices = append(w.rig.devices, s.Devices()...)
		for end := time.Now().Add(10 * time.Second); w.rig.read && errors.Is(w.rig.open.sample(i), errStarting) && time.Now().Before(end); {
			time.Sleep(20 * time.Millisecond) // the suite needs the engine's first values
		}
	}
	return sources, nil
}

func (w *witness) Close() error {
	w.rig.open = nil
	return w.Collector.Close()
}

type rig struct {
	open    *opened // nil if none is
	read    bool    // sample after Open: NVIDIA's engine cannot report the loss of a GPU that never had values
	devices []collector.Device
}

// gpu returns the number of a device's GPU.
func (r *rig) gpu(tb testing.TB, id string) int {
	tb.Helper()
	i := slices.IndexFunc(r.devices, func(d collector.Device) bool { return d.ID == id })
	testkit.FatalIf(tb, i < 0, "no source has device %q", id)
	n := testkit.Get(strconv.Atoi(r.devices[i].GPU))(tb)
	return n
}
