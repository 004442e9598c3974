//go:build linux && cgo

package dcgm

import (
	"fmt"
	"math"
	"testing"
	"time"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/internal/testkit/eventually"
)

// TestHistoriesHaveEachValueOnce: however the rows fall, their blocks stand for the time up
// to the newest value that was fetched, and no more.
func TestHistoriesHaveEachValueOnce(t *testing.T) {
	e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 2})
	o := remote(e)
	o.Interval = 10 * time.Millisecond
	c := open1(t, o, temperature, "histogram DCGM_FI_DEV_POWER_USAGE")
	src := c.sources[0].(*source)
	h := src.parts[len(src.parts)-1].(*histories)
	began := h.all[0].buffers[0].Last()
	got := make([]float64, 2) // ms, by GPU
	eventually.OK(t, "values of a tenth of a second", func() error {
		c.mustSample(t)
		for i, col := range src.Columns() {
			if v := c.row[0][i]; col.Buffer > 0 && col.Buffer%2 == 0 && !math.IsNaN(v) {
				got[col.Device] += v
			}
		}
		for gpu, b := range h.all[0].buffers {
			if want := float64(b.Last()-began) / 1000; math.Abs(got[gpu]-want) > 1e-6 {
				t.Fatalf("GPU %d: values stand for %v ms of %v", gpu, got[gpu], want)
			}
			if got[gpu] < 100 {
				return fmt.Errorf("GPU %d: %v ms", gpu, got[gpu])
			}
		}
		return nil
	})
}

// TestHistoriesRefused: an engine that refuses histories costs only them.
func TestHistoriesRefused(t *testing.T) {
	e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 1})
	c := open1(t, remote(e), "histogram DCGM_FI_DEV_POWER_USAGE")
	e.Return("dcgmGetValuesSince_v2", -3)
	c.mustSample(t)
	for i, col := range c.sources[0].Columns() {
		if v := c.row[0][i]; math.IsNaN(v) != (col.Buffer > 0) {
			t.Errorf("column %+v has %v", col, v)
		}
	}
}
