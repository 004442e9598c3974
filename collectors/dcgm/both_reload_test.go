//go:build linux && cgo

package dcgm

import (
	"slices"
	"testing"

	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/internal/testkit/eventually"
)

// TestNextSession: a collector that is opened after another one was closed has all its
// values, whatever the former read.
func TestNextSession(t *testing.T) {
	all := settableNames
	for name, lists := range map[string]struct{ first, second []string }{
		"other fields": {all[:4], all[2:]},
		"an event":     {append(slices.Clone(all), "DCGM_FI_DEV_XID_ERRORS"), []string{temperature, xidCount, "DCGM_FI_DEV_XID_ERRORS"}},
	} {
		t.Run(name, func(t *testing.T) {
			for kind, h := range map[string]hardware{"host engine": {gpus: 2}, "embedded": {gpus: 2, embedded: true}} {
				t.Run(kind, func(t *testing.T) {
					onBoth(t, h, func(t *testing.T, m machine) {
						for _, names := range [][]string{lists.first, lists.second} {
							c := started(t, m, names...)
							c.keepsReading(t, m, names)
							if err := c.Close(); err != nil {
								t.Fatal(err)
							}
							nothingLeft(t, m)
						}
					})
				})
			}
		})
	}
}

// keepsReading wants to see each value that a collector reads change, and each time stamp
// move: an engine keeps answering with what it has read last.
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

// stamp is when the engine has read a field of a GPU, Unix µs.
func (c *opened) stamp(tb testing.TB, gpu int, name string) int64 {
	tb.Helper()
	return c.newest(tb, gpu, uint16(settable[name].id))[0].micros
}

// newest are the values of fields of a GPU that the engine has now.
func (c *opened) newest(tb testing.TB, gpu int, fields ...uint16) []cell {
	tb.Helper()
	cells := make([]cell, len(fields))
	if err := c.engine.latest([]entity{{kindGPU, uint32(gpu)}}, fields, c.engine.newScratch(len(fields)), cells); err != nil {
		tb.Fatal(err)
	}
	return cells
}

// gpus are how many the first source has.
func (c *opened) gpus() (n int) {
	for _, d := range c.sources[0].Devices() {
		if d.ID == d.UUID {
			n++
		}
	}
	return n
}
