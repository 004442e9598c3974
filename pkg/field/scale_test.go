package field

import (
	"math"
	"testing"

	"warpgauge/internal/testkit"
)

func TestScale(t *testing.T) {
	f := func(factor, reading, want float64) {
		t.Helper()
		got := NewScale(factor).Of(reading)
		testkit.ErrorIf(t, got != want, "got %v × %v = %v, want %v", reading, factor, got, want)
	}
	for reading := range 10_000 {
		f(1, float64(reading), float64(reading))
		f(0.001, float64(reading), float64(reading)/1000)
		f(0.01, float64(reading), float64(reading)/100)
	}
	f(1e6, 1980, 1.98e9)
	f(1048576, 81559, 81559*1048576)
	f(0.3, 10, 3)
	f(-1, 10, -10)
	f(0, 10, 0)
	f(math.SmallestNonzeroFloat64, 2, 2*math.SmallestNonzeroFloat64)
	v := NewScale(0.001).Of(math.NaN())
	testkit.ErrorIf(t, v == v, "a blank became %v", v)
}
