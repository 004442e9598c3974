package accumulate

import (
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/field"
)

const (
	clockCount = "DCGM_EXP_CLOCK_EVENTS_COUNT"
	clockTotal = "DCGM_EXP_CLOCK_EVENTS_TOTAL"
)

func TestClockEvents(t *testing.T) {
	const powerCap, swThermal, unknown = 0x4, 0x20, 0x1000
	b := newBoard(64, "GPU-a", "GPU-silent")
	v := viewOf(b)
	s, sync := newStore()
	step := func(seconds, mask float64) {
		*b.cell(0, cellClocks) = mask
		b.row(at(seconds))
		sync(v, at(seconds))
	}
	check := func(reason string, count, total float64) {
		t.Helper()
		testkit.Equal(t, reason+": count", count, value(s, "GPU-a", clockCount, "clock_event", reason, "window_size_in_ms", fiveMin), cmpopts.EquateNaNs())
		testkit.Equal(t, reason+": total", total, value(s, "GPU-a", clockTotal, "clock_event", reason), cmpopts.EquateNaNs())
	}
	step(0, nan)
	check("power_cap", nan, nan) // not known yet
	step(1, 0)
	for i := range field.ClockReasons {
		reason, _ := field.ClockReason(i)
		check(reason, 0, 0)
	}
	step(2, powerCap)
	check("power_cap", 1, 1)
	step(3, powerCap|swThermal|unknown)
	check("power_cap", 1, 1)
	check("sw_thermal", 1, 1)
	step(4, nan) // a blank does not end an event
	step(5, powerCap)
	check("sw_thermal", 1, 1)
	step(6, 0)
	step(7, powerCap)
	check("power_cap", 2, 2)
	step(400, powerCap)
	check("power_cap", 1, 2) // the first run ended at 6; the second is active
	check("sw_thermal", 0, 1)
	step(10_000, powerCap)
	check("power_cap", 1, 2) // never 0 while active
	step(10_001, 0)
	check("power_cap", 1, 2)
	step(10_301, 0)
	check("power_cap", 1, 2)
	step(10_311, 0)
	check("power_cap", 0, 2)
	step(10_312, -4)    // not a mask
	step(10_313, 1<<60) // both invalid: a float64 cell cannot hold their low bits
	check("power_cap", 0, 2)
	count := value(s, "GPU-silent", clockCount, "clock_event", "power_cap", "window_size_in_ms", fiveMin)
	testkit.Equal(t, "count of a device without the reading", nan, count, cmpopts.EquateNaNs())
}
