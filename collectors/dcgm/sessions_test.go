//go:build linux && cgo

package dcgm

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/pkg/accumulate"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/session"
	"warpgauge/pkg/supervisor"
	"warpgauge/pkg/view"
)

const xidTotal = "DCGM_EXP_XID_ERRORS_TOTAL"

// served is a collector under a supervisor, with the counters of its rows.
type served struct {
	*supervisor.Supervisor
	view.Merger
	store    *accumulate.Store
	registry *prometheus.Registry
}

func serve(t *testing.T, o Options) *served {
	t.Helper()
	o.Interval = 10 * time.Millisecond
	s := &served{registry: prometheus.NewRegistry()}
	s.Supervisor = supervisor.New(supervisor.Wanted{List: list(t, temperature, xidTotal)}, supervisor.Options{
		Name: "dcgm", Page: s.Part(), Open: func() collector.Collector { return New(o) }, Session: session.Options{Interval: o.Interval},
	})
	s.store = accumulate.New(accumulate.Options{Rows: rows.New(s.Board(), nil)})
	s.registry.MustRegister(s.store)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-ended)
	})
	eventually.True(t, "a collector in service", func() bool { return s.Status().Up })
	s.sync()
	return s
}

func (s *served) sync() { s.store.Sync(time.Now()) }

// reload requests another list with the same fields.
func (s *served) reload(t *testing.T) <-chan error {
	t.Helper()
	next := list(t, temperature, xidTotal)
	return s.Change(func(w *supervisor.Wanted) { w.List = next })
}

// counted returns the number of XIDs by device and code.
func (s *served) counted() map[string]float64 {
	out := map[string]float64{}
	for _, c := range s.store.Series() {
		if *c.Value > 0 {
			out[c.Source.Devices[c.Device].ID+" "+c.Labels[0].Value] += *c.Value
		}
	}
	return out
}

func (s *served) gaps(t *testing.T) (sum float64) {
	t.Helper()
	all := testkit.Get(s.registry.Gather())(t)
	for _, f := range all {
		for _, m := range f.GetMetric() {
			if f.GetName() == "warpgauge_event_gaps_total" {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// TestXIDsOverReloads checks that each XID of a GPU, GPU instance or compute instance is counted once, with a reload after
// each on the same engine, even if several sessions end before one of their rows is read or before they are in service.
func TestXIDsOverReloads(t *testing.T) {
	e := dcgmtest.New(t, dcgmtest.Config{Preset: "a100-mig"})
	e.XID(0, 31) // before the exporter
	s := serve(t, remote(e))
	gpu := nvmltest.UUID(0)
	want := map[string]float64{}
	of := []struct {
		entity dcgmtest.Entity
		device string
	}{
		{dcgmtest.GPU(0), gpu},
		{dcgmtest.Instance(1), gpu + "/2"},
		{dcgmtest.Compute(0), gpu + "/1"},    // the only one of its instance, which has its labels
		{dcgmtest.Compute(17), gpu + "/3/1"}, // one of two
	}
	for i := range 24 {
		x := of[i%len(of)]
		e.XIDOf(x.entity, 40+i%3)
		want[fmt.Sprintf("%s %d", x.device, 40+i%3)]++
		done := s.reload(t)
		if i%5 == 0 {
			must(t, <-done)
		}
		if i%7 == 0 {
			s.sync()
		}
	}
	for range 2 { // another reload adds none
		eventually.OK(t, "each XID once", func() error {
			s.sync()
			if got := s.counted(); fmt.Sprint(got) != fmt.Sprint(want) {
				return fmt.Errorf("counted %v, want %v", got, want)
			}
			return nil
		})
		must(t, <-s.reload(t))
	}
	n := s.gaps(t)
	testkit.ErrorIf(t, n != 0, "%v gaps on an engine that lives on", n)
}

// TestXIDsOverRestarts checks that a restart of the engine is a gap of each GPU, because XIDs in between are unknown, and
// that later XIDs are counted.
func TestXIDsOverRestarts(t *testing.T) {
	for name, embedding := range map[string]bool{"host engine": false, "embedded": true} {
		t.Run(name, func(t *testing.T) {
			e := dcgmtest.New(t, dcgmtest.Config{Preset: "pcie", GPUs: 2})
			o := remote(e)
			if embedding {
				o = embedded(e)
			}
			s := serve(t, o)
			e.XID(1, 48)
			eventually.True(t, "the first XID", func() bool { s.sync(); return s.counted()[nvmltest.UUID(1)+" 48"] == 1 })
			head := s.Board().Load().Sources[0].Ring.Head()
			eventually.True(t, "rows without an XID", func() bool { return s.Board().Load().Sources[0].Ring.Head() > head+2 })
			must(t, <-s.Change(func(w *supervisor.Wanted) { w.Released = true }))
			e.Restart() // an embedded engine has ended with its session
			must(t, <-s.Change(func(w *supervisor.Wanted) { w.Released = false }))
			eventually.True(t, "a gap of each GPU", func() bool { s.sync(); return s.gaps(t) == 2 })
			e.XID(1, 48)
			eventually.True(t, "the second XID", func() bool { s.sync(); return s.counted()[nvmltest.UUID(1)+" 48"] == 2 })
		})
	}
}

// TestNextSession checks that a collector has all its values, whatever the previously closed collector read.
func TestNextSession(t *testing.T) {
	const last = "DCGM_FI_DEV_XID_ERRORS"
	onAll(t, hardware{gpus: 2}, func(t *testing.T, m machine) {
		for _, names := range [][]string{append(slices.Clone(settableNames[:4]), last), append(slices.Clone(settableNames[2:]), last, xidCount), {temperature, xidCount}} {
			c := started(t, m, names...)
			c.keepsReading(t, m, names)
			must(t, c.Close())
			nothingLeft(t, m)
		}
	})
}

// keepsReading checks that each value and timestamp of a collector changes. An engine that stopped reading returns its last
// values.
func (c *opened) keepsReading(tb testing.TB, m machine, names []string) {
	tb.Helper()
	for i, name := range names {
		if _, ok := settable[name]; !ok {
			continue
		}
		for gpu := range c.gpus() {
			before := c.stamp(tb, gpu, name)
			eventually.True(tb, name+" is read on", func() bool { return c.stamp(tb, gpu, name) > before })
			for _, v := range []float64{float64(i + 1), float64(i + 30)} {
				m.set(gpu, name, v)
				c.untilValue(tb, nvmltest.UUID(gpu), name, v)
			}
		}
	}
}

// stamp returns when the engine read a field of a GPU, Unix µs.
func (c *opened) stamp(tb testing.TB, gpu int, name string) int64 {
	tb.Helper()
	cells := make([]cell, 1)
	fields := []uint16{uint16(settable[name].id)}
	testkit.Must(tb, c.engine.latest([]entity{{kindGPU, uint32(gpu)}}, fields, false, c.engine.newScratch(1), cells))
	return cells[0].micros
}

// gpus returns the number of GPUs of the first source.
func (c *opened) gpus() (n int) {
	for _, d := range c.sources[0].Devices() {
		if d.ID == d.UUID {
			n++
		}
	}
	return n
}
