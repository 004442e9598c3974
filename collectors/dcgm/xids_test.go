//go:build linux && cgo

package dcgm

import (
	"math"
	"slices"
	"testing"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

const xidCount = "DCGM_EXP_XID_ERRORS_COUNT"

// events samples once and returns what each GPU had.
func events(tb testing.TB, c *opened) map[string][]float64 {
	tb.Helper()
	c.mustSample(tb)
	out := map[string][]float64{}
	for s, src := range c.sources {
		for i, col := range src.Columns() {
			if v := c.row[s][i]; col.Field == field.XIDEvent && !math.IsNaN(v) {
				id := src.Devices()[col.Device].ID
				out[id] = append(out[id], v)
			}
		}
	}
	return out
}

// drain samples until nothing more comes.
func drain(tb testing.TB, c *opened) map[string][]float64 {
	tb.Helper()
	all := map[string][]float64{}
	for {
		some := events(tb, c)
		if len(some) == 0 {
			return all
		}
		for id, codes := range some {
			all[id] = append(all[id], codes...)
		}
	}
}

func wantEvents(tb testing.TB, what string, got map[string][]float64, want map[string][]float64) {
	tb.Helper()
	if len(got) != len(want) {
		tb.Errorf("%s: got %v, want %v", what, got, want)
	}
	for id, codes := range want {
		if !slices.Equal(got[id], codes) {
			tb.Errorf("%s: %s: got %v, want %v", what, id, got[id], codes)
		}
	}
}

// TestLostXIDs: an engine that refuses XIDs costs only them.
func TestLostXIDs(t *testing.T) {
	e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 1})
	e.Refuse(dcgmtest.All(dcgmtest.KindGPU), int(field.XIDErrors), -6)
	c := open1(t, remote(e), temperature, xidCount)
	c.mustSample(t)
	for _, col := range c.sources[0].Columns() {
		if col.Field == field.XIDEvent {
			t.Errorf("there is a column for XIDs that cannot be had: %+v", col)
		}
	}
}

// TestHistoryFails: XIDs whose history cannot be read are counted later, and cost no other
// value meanwhile.
func TestHistoryFails(t *testing.T) {
	e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 1})
	c := open1(t, remote(e), temperature, xidCount)
	c.mustSample(t)
	e.Return("dcgmGetValuesSince_v2", -3)
	e.XID(0, 13)
	for range 2 {
		wantEvents(t, "without a history", events(t, c), nil)
	}
	if n := c.logs.FilterMessageSnippet("cannot read XIDs").Len(); n != 1 {
		t.Errorf("logged %d times, want once", n)
	}
	e.Return("dcgmGetValuesSince_v2", 0)
	wantEvents(t, "afterwards", events(t, c), map[string][]float64{nvmltest.UUID(0): {13}})
}

// TestStormOfXIDs: of more than can wait for rows some are not counted, which is a gap.
func TestStormOfXIDs(t *testing.T) {
	e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 1})
	c := open1(t, remote(e), temperature, xidCount)
	c.mustSample(t)
	since := func() float64 {
		i := slices.IndexFunc(c.sources[0].Columns(), func(col collector.Column) bool { return col.Field == field.XIDsSince })
		return c.row[0][i]
	}
	began := since()
	x := c.sources[0].(*source).parts[1].(*xids)
	for range xidPending - 1 {
		x.devices[0].pending = append(x.devices[0].pending, cell{value: 31, micros: 1})
	}
	for code := range 3 {
		e.XID(0, 100+code)
	}
	all := drain(t, c)[nvmltest.UUID(0)]
	if len(all) != xidPending || all[xidPending-1] != 100 {
		t.Errorf("%d XIDs, the last %v; want %d and 100", len(all), all[len(all)-1], xidPending)
	}
	if since() <= began {
		t.Error("no gap is said")
	}
}
