package exposition

import (
	"math"
	"testing"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/view"
	"warpgauge/pkg/view/viewtest"
)

// counting is a source of GPUs a and b: energy, a counter, for both; power, which only the list calls a counter, for
// a; replays for a link of a.
func counting(order ...int) *feed {
	list := field.List{Fields: []field.Field{
		metric(descEnergy, "ENERGY", field.Counter, ""), metric(descPower, "POWER", field.Counter, ""), metric(descLink, "REPLAYS", field.Counter, ""),
	}}
	columns := []collector.Column{
		{Device: 0, Field: descEnergy.ID}, {Device: 1, Field: descEnergy.ID}, {Device: 0, Field: descPower.ID},
		{Device: 0, Field: descLink.ID, Labels: labelsFrom("link", "1")},
	}
	var placed []collector.Column
	for _, i := range order {
		placed = append(placed, columns[i])
	}
	return viewtest.Simple(list, []collector.Device{{ID: "a", Level: field.GPU}, {ID: "b", Level: field.GPU}}, placed)
}

// TestCountersDoNotGoBack: when another source takes a device over, its counters start at the value shown
// before, for any order of columns.
func TestCountersDoNotGoBack(t *testing.T) {
	const staleAfter = 30 * time.Second
	now := time.Unix(1_800_000_000, 0)
	nan := math.NaN()
	nvml, dcgm := counting(0, 1, 2, 3), counting(3, 2, 1, 0)
	var s snapshot
	f := func(what string, v *view.View, src *feed, row []float64, want ...float64) {
		t.Helper()
		now = now.Add(time.Second)
		if row != nil {
			copy(src.Row, row)
			src.Tick(now)
		}
		s.capture(v, staleAfter, now)
		for i, w := range want {
			if got := s.cells[i]; got != w && !(math.IsNaN(got) && math.IsNaN(w)) {
				t.Errorf("%s: cells are %v, want %v", what, s.cells, want)
				break
			}
		}
	}
	by := func(src *feed) *view.View { return viewtest.View(1, src) }
	one, two := by(nvml), by(dcgm)
	f("NVML: energy of a, of b, power, replays", one, nvml, []float64{1000, 500, 300, 7}, 1000, 500, 300, 7)
	f("a counter that was restarted", one, nvml, []float64{100, 500, 300, 7}, 100, 500, 300, 7)
	f("it counts", one, nvml, []float64{1000, 500, 300, 7}, 1000, 500, 300, 7)
	f("DCGM is behind: replays, power, energy of b, of a", two, dcgm, []float64{6, 200, 499, 999}, 7, 200, 500, 1000)
	f("no new row", two, dcgm, nil, 7, 200, 500, 1000)
	f("one is not there", two, dcgm, []float64{6, 200, 499, nan}, 7, 200, 500, nan)
	f("two are there, one further", two, dcgm, []float64{7, 100, 501, 999}, 7, 100, 501, 1000)
	f("further", two, dcgm, []float64{8, 100, 502, 1001}, 8, 100, 502, 1001)
	f("what was passed may be restarted", two, dcgm, []float64{0, 100, 0, 0}, 0, 100, 0, 0)
	f("it counts", two, dcgm, []float64{9, 100, 503, 1002}, 9, 100, 503, 1002)

	f("NVML is behind", one, nvml, []float64{900, 400, 300, 5}, 1002, 503, 300, 9)
	f("and DCGM again, behind what was shown", two, dcgm, []float64{6, 200, 499, 950}, 9, 200, 503, 1002)
	now = now.Add(staleAfter - 2*time.Second)
	f("also when the last row is as old as a row may be", two, dcgm, []float64{6, 200, 499, 950}, 9, 200, 503, 1002)
	now = now.Add(staleAfter)
	f("for longer than that: it was restarted", two, dcgm, []float64{6, 200, 499, 950}, 6, 200, 499, 950)

	now = now.Add(staleAfter)
	s.capture(two, staleAfter, now)
	f("a counter that the last page did not have", one, nvml, []float64{1, 1, 300, 1}, 1, 1, 300, 1)
}
