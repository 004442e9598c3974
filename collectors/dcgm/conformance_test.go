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

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/collector/collectortest"
	"warpgauge/pkg/field"
)

// TestConformance runs the suite of the contract on the simulated library, which
// the collector loads and calls as it would DCGM's. What hangs in DCGM is the
// engine, with all that it has, so there is no board to let hang alone: see
// TestHang and TestStalled.
func TestConformance(t *testing.T) {
	for name, c := range map[string]struct {
		config   dcgmtest.Config
		embedded bool
	}{
		"A100 MIG":       {config: dcgmtest.Config{Preset: "a100-mig"}},
		"PCIe, embedded": {config: dcgmtest.Config{Preset: "pcie", GPUs: 3}, embedded: true},
	} {
		t.Run(name, func(t *testing.T) {
			collectortest.Run(t, collectortest.Harness{
				Name: "dcgm",
				New: func(tb testing.TB) collectortest.Rig {
					e := simulate(tb, c.config)
					o := remote(e)
					if c.embedded {
						o = embedded(e)
					}
					return newRig(tb, e, o)
				},
			})
		})
	}
}

// TestConformanceOfNVIDIA runs the suite on NVIDIA's engine. What the suite does to the
// hardware, the engine must have noticed before the suite looks. Health is left out: it
// finds in time that the simulated power is at its limit, and each new reason takes a
// new Open (TestHealthJudged).
func TestConformanceOfNVIDIA(t *testing.T) {
	for name, h := range map[string]hardware{
		"H100": {gpus: 3}, "H100 by TCP": {gpus: 2, tcp: true}, "H100 embedded": {gpus: 2, embedded: true},
		"H100 MIG": {gpus: 2, mig: []string{"1g", "2g", "3g/2"}},
	} {
		t.Run(name, func(t *testing.T) {
			fields := collectortest.Fields()
			fields.Fields = slices.DeleteFunc(fields.Fields, func(f field.Field) bool { return f.Desc.ID == field.GPUHealth })
			collectortest.Run(t, collectortest.Harness{
				Name: "dcgm", Fields: fields,
				New: func(tb testing.TB) collectortest.Rig {
					m := newReal(tb, h)
					open1(tb, m.options(), "DCGM_FI_DEV_SM_CLOCK") // keeps the connection, whose socket the library closes in its own time
					r := &rig{read: true}
					rig := collectortest.Rig{
						Factory: func() collector.Collector { return &witness{New(m.options()), r} },
						LoseDevice: func(id string) {
							c := second(tb, m)
							m.lose(r.gpu(tb, id))
							c.until(tb, 0, "a lost GPU", func(err error) bool { return errors.Is(err, collector.ErrDeviceLost) })
						},
						RestoreDevice: func(id string) {
							m.restore(r.gpu(tb, id))
							eventually.OK(tb, "the GPU again", func() error { return alive(tb, m, id) })
						},
						ChangeColumns: func() {
							c := second(tb, m)
							m.setMIG(0, "1g", "1g")
							c.untilRescan(tb)
						},
					}
					if !h.embedded {
						rig.FailOpen = func() func() { m.stop(); return m.start }
					}
					return rig
				},
			})
		})
	}
}

// alive is nil if a collector that is opened now has the temperature of a GPU.
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

// second is a collector that has all that the one under test has, and shows when the
// engine has noticed something.
func second(tb testing.TB, m machine) *opened {
	tb.Helper()
	c, err := openBriefly(tb, m.options(), everything()...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.close(tb) })
	_ = c.sample(0)
	return c
}

// witness remembers what the sources of a rig's collectors are.
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
	read bool // Open is followed by a sample: of a GPU that never had values NVIDIA's engine cannot say that it is lost

	mu      sync.Mutex
	devices []collector.Device
}

// gpu is the number of the GPU that a device is or is part of.
func (r *rig) gpu(tb testing.TB, id string) int {
	tb.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.devices, func(d collector.Device) bool { return d.ID == id })
	if i < 0 {
		tb.Fatalf("no source has device %q", id)
	}
	n, err := strconv.Atoi(r.devices[i].GPU)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

func newRig(tb testing.TB, e *dcgmtest.Engine, o Options) collectortest.Rig {
	r := &rig{}
	return collectortest.Rig{
		Factory:       func() collector.Collector { return &witness{New(o), r} },
		LoseDevice:    func(id string) { e.Lose(r.gpu(tb, id)) },
		RestoreDevice: func(id string) { e.Restore(r.gpu(tb, id)) },
		ChangeColumns: func() { e.SetMIG(0, "1g.10gb", "1g.10gb") },
		FailOpen: func() func() {
			if o.Engine == "" {
				e.RefuseEmbedded(-56)
				return func() { e.RefuseEmbedded(0) }
			}
			e.Stop(-21)
			return e.Start
		},
		RaiseEvent: func(id string, _ field.ID, value float64) { e.XID(r.gpu(tb, id), int(value)) },
	}
}
