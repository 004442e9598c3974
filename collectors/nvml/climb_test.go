//go:build linux && cgo

package nvml

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"warpgauge/internal/testkit"
)

func TestClimb(t *testing.T) {
	nan := math.NaN()
	f := func(what string, in, want []float64) {
		t.Helper()
		var c climb
		got := make([]float64, len(in))
		for i, v := range in {
			got[i], _ = c.update(v)
		}
		equal(t, want, got, "%s: %v", what, in)
	}
	f("up", []float64{1, 2, 2, 5}, []float64{1, 2, 2, 5})
	f("a gap", []float64{1, nan, 5}, []float64{1, nan, 5})
	f("a slip", []float64{100, 3, 101}, []float64{100, nan, 101})
	f("a slip to zero and back to the same", []float64{100, 0, 100}, []float64{100, nan, 100})
	f("a reset", []float64{100, 3, 5, 7}, []float64{100, nan, 5, 7})
	f("a reset after which nothing happens", []float64{100, 0, 0, 1}, []float64{100, nan, 0, 1})
	f("two slips", []float64{100, 3, 2, 101}, []float64{100, nan, nan, 101})
	f("a reset during a gap", []float64{100, nan, 3, nan, 4}, []float64{100, nan, nan, nan, 4})
	f("two resets", []float64{100, 50, 60, 5, 6}, []float64{100, nan, 60, nan, 6})
	f("falling for ever", []float64{5, 4, 3, 2}, []float64{5, nan, nan, nan})
}

func TestSpeed(t *testing.T) {
	nan := math.NaN()
	type reading struct{ v, driver, own float64 } // times in seconds
	f := func(what string, in []reading, want []float64) {
		t.Helper()
		s := speed{rate: math.NaN()}
		got := make([]float64, len(in))
		for i, r := range in {
			got[i] = s.update(r.v, moment{driver: int64(r.driver * micros), own: int64(r.own * nanos)})
		}
		testkit.Equal(t, what, want, got, cmpopts.EquateNaNs(), cmpopts.EquateApprox(1e-9, 0))
	}
	f("by our clock", []reading{{10, 0, 1}, {30, 0, 2}, {30, 0, 3}}, []float64{nan, 20, 0})
	f("by the driver's", []reading{{10, 100, 1}, {30, 100.5, 2}}, []float64{nan, 40})
	f("not refreshed", []reading{{10, 100, 1}, {30, 101, 2}, {30, 101, 2.5}, {50, 102, 3}}, []float64{nan, 20, 20, 20})
	f("not refreshed for long", []reading{{10, 100, 1}, {30, 101, 2}, {30, 101, 3.5}}, []float64{nan, 20, nan})
	f("the clock was set forward", []reading{{10, 100, 1}, {30, 3700, 2}, {50, 3701, 3}}, []float64{nan, 20, 20})
	f("the clock was set back", []reading{{10, 5000, 1}, {30, 1400, 2}, {50, 1401, 3}}, []float64{nan, 20, 20})
	f("the clock was set back during a long interval", []reading{{0, 5000, 0}, {300, 5001, 30}}, []float64{nan, 10})
	f("a reset", []reading{{100, 0, 1}, {5, 0, 2}, {15, 0, 3}, {25, 0, 4}}, []float64{nan, nan, nan, 10})
	f("a slip", []reading{{100, 0, 1}, {5, 0, 2}, {120, 0, 3}}, []float64{nan, nan, 10})
	f("a gap", []reading{{100, 0, 1}, {nan, 0, 2}, {120, 0, 3}}, []float64{nan, nan, 10})
}
