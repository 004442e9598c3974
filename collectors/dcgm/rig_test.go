//go:build linux && cgo

package dcgm

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// simulate makes an engine.
func simulate(tb testing.TB, c dcgmtest.Config) *dcgmtest.Engine {
	tb.Helper()
	return dcgmtest.New(tb, c)
}

// list is a CSV of names: gauges, and labels after "label ", histograms after "histogram ".
func list(tb testing.TB, names ...string) field.List {
	tb.Helper()
	var b strings.Builder
	for _, n := range names {
		name, isLabel := strings.CutPrefix(n, "label ")
		kind := "gauge"
		if isLabel {
			kind = "label"
		}
		if h, is := strings.CutPrefix(n, "histogram "); is {
			name, kind = h, "histogram"
		}
		b.WriteString(name + ", " + kind + ", text\n")
	}
	l, _, err := field.Parse(strings.NewReader(b.String()), field.ParseOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// opened is an open collector and what it logged.
type opened struct {
	*Collector
	sources []collector.Source
	logs    *observer.ObservedLogs
	row     [][]float64
	due     [][]bool
}

// openAs opens a collector with options, which name at least the library.
func openAs(tb testing.TB, o Options, names ...string) (*opened, error) {
	tb.Helper()
	core, logs := observer.New(zapcore.DebugLevel)
	o.Log = zap.New(core)
	out := &opened{Collector: New(o), logs: logs}
	ctx, cancel := context.WithTimeout(tb.Context(), eventually.Patience)
	defer cancel()
	sources, err := out.Open(ctx, list(tb, names...))
	if err != nil {
		return out, err
	}
	tb.Cleanup(func() { _ = out.Close() })
	out.hold(sources)
	return out, nil
}

// hold makes rows for sources, everything due.
func (c *opened) hold(sources []collector.Source) {
	c.sources = sources
	for _, s := range sources {
		n := len(s.Columns())
		c.row, c.due = append(c.row, slices.Repeat([]float64{math.NaN()}, n)), append(c.due, slices.Repeat([]bool{true}, n))
	}
}

func remote(e *dcgmtest.Engine) Options {
	return Options{Library: e.Library(), Engine: "localhost:5555"}
}
func embedded(e *dcgmtest.Engine) Options { return Options{Library: e.Library()} }

func open1(tb testing.TB, o Options, names ...string) *opened {
	tb.Helper()
	c, err := openAs(tb, o, names...)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// sample samples a source, with everything due and what it held before erased.
func (c *opened) sample(source int) error {
	for i := range c.row[source] {
		c.row[source][i] = math.NaN()
	}
	return c.sources[source].Sample(c.row[source], c.due[source])
}

func (c *opened) mustSample(tb testing.TB) {
	tb.Helper()
	for i := range c.sources {
		if err := c.sample(i); err != nil {
			tb.Fatal(err)
		}
	}
}

// device is the index of a device in its source, by its ID.
func (c *opened) device(tb testing.TB, id string) (source, device int) {
	tb.Helper()
	for s, src := range c.sources {
		for d, dev := range src.Devices() {
			if dev.ID == id {
				return s, d
			}
		}
	}
	tb.Fatalf("no device %q", id)
	return 0, 0
}

// value is the cell of a field of a device; ok is false if there is no column.
func (c *opened) value(tb testing.TB, id, name string) (v float64, ok bool) {
	tb.Helper()
	d, _, known := field.ByName(name)
	if !known {
		tb.Fatalf("no field %q", name)
	}
	s, dev := c.device(tb, id)
	for i, col := range c.sources[s].Columns() {
		if col.Device == dev && col.Field == d.ID {
			return c.row[s][i], true
		}
	}
	return math.NaN(), false
}

// parts of a source by type.
func (c *opened) readings(i int) *readings {
	return c.sources[i].(*source).parts[0].(*readings)
}
