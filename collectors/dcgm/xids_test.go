//go:build linux && cgo

package dcgm

import (
	"math"
	"slices"
	"testing"
	"time"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/collectors/nvml/nvmltest"
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

// TestXIDs: each XID is reported once, however many there are between two ticks, and
// those from before Open are not.
func TestXIDs(t *testing.T) {
	e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 2})
	e.XIDAt(0, 31, time.Now().Add(-time.Hour))
	c := open1(t, remote(e), temperature, xidCount)
	a, b := nvmltest.UUID(0), nvmltest.UUID(1)
	wantEvents(t, "before", events(t, c), nil)
	e.ResetCalls()
	wantEvents(t, "none", events(t, c), nil)
	if n := e.Calls("dcgmGetMultipleValuesForField"); n != 0 {
		t.Errorf("asked %d times for XIDs when there were none", n)
	}
	e.XID(0, 79)
	wantEvents(t, "one", events(t, c), map[string][]float64{a: {79}})
	wantEvents(t, "one, later", events(t, c), nil)
	e.XID(0, 13)
	e.XID(1, 13)
	e.XID(0, 13)
	e.XID(0, 43)
	wantEvents(t, "several", events(t, c), map[string][]float64{a: {13, 13, 43}, b: {13}})
	wantEvents(t, "several, later", events(t, c), nil)
}

// TestXIDStorm: more XIDs than a row or a call can hold come with the next ticks.
func TestXIDStorm(t *testing.T) {
	e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 1})
	c := open1(t, remote(e), temperature, xidCount)
	now := time.Now()
	var want []float64
	for i := range 150 {
		e.XIDAt(0, 100+i, now.Add(-time.Duration(150-i)*time.Microsecond))
		want = append(want, float64(100+i))
	}
	wantEvents(t, "storm", drain(t, c), map[string][]float64{nvmltest.UUID(0): want})
	if e.Trouble() != nil {
		t.Error(e.Trouble())
	}
}

// TestXIDsOfLaterSession: a collector reports the XIDs since its own Open.
func TestXIDsOfLaterSession(t *testing.T) {
	e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 1})
	gpu := nvmltest.UUID(0)
	for n := range 3 {
		c := open1(t, remote(e), temperature, xidCount)
		wantEvents(t, "from before", drain(t, c), nil)
		e.XID(0, 10+n)
		wantEvents(t, "since", drain(t, c), map[string][]float64{gpu: {float64(10 + n)}})
		if err := c.Close(); err != nil {
			t.Fatal(err)
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
