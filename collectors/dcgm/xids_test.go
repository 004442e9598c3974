//go:build linux && cgo

package dcgm

import (
	"math"
	"slices"
	"testing"

	"warpgauge/collectors/dcgm/dcgmtest"
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
