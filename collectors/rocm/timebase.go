package rocm

import (
	"time"

	gm "warpgauge/collectors/rocm/internal/gpumetrics"
)

// timebase is the clock of the counters in gpu_metrics. The firmware stamps the counters when it reads them. The driver
// stamps the file when we read it, up to 5 ms later, because the driver caches the table. So timebase prefers the firmware's
// stamp, but only after it has advanced at the speed of the driver's clock: no document guarantees that for every board.
type timebase struct {
	era      uint64
	firmware bool // the firmware's stamp is in use
	decided  bool
	driver0  uint64 // start of the comparison
	stamp0   uint64
	start    time.Time // for boards without either clock

	moved nanos // stamp at its last change, and the driver's clock at that time
	at    nanos
}

const (
	stampUnit    = 10          // ns
	compareSpan  = nanos(1e9)  // long enough to ignore the age of the table
	tolerance    = 20          // a twentieth
	frozenForNow = nanos(10e9) // if the stamp is frozen for this long, the firmware does not measure
)

// reset begins a new era. Counts of different eras cannot be compared.
func (t *timebase) reset() { *t = timebase{era: t.era + 1} }

// advance returns the time of m, and whether the firmware has stopped measuring.
func (t *timebase) advance(m *gm.Metrics) (now nanos, frozen bool) {
	driver, stamp := m.Raw(gm.SystemClockCounter, 0), m.Raw(gm.FirmwareTimestamp, 0)
	if driver == gm.NA {
		if t.start.IsZero() {
			t.reset()
			t.start = time.Now()
		}
		return nanos(time.Since(t.start)), false
	}
	usable := stamp != gm.NA && stamp != 0
	if t.firmware && !usable || stamp < t.stamp0 || driver < t.driver0 || !t.start.IsZero() {
		t.reset() // the GPU was reset, or its clock has changed
	}
	if usable {
		t.compare(driver, stamp)
	}
	if !t.firmware {
		return nanos(driver), false
	}
	now = t.anchored(stamp)
	if now != t.moved {
		t.moved, t.at = now, nanos(driver)
	}
	return now, nanos(driver) > t.at+frozenForNow
}

// anchored converts the stamp to the driver's clock. It aligns both at the start of the comparison, so that changing the
// clock loses no sample.
func (t *timebase) anchored(stamp uint64) nanos {
	return nanos(t.driver0) + nanos(stamp-t.stamp0)*stampUnit
}

// compare decides once whether the stamp keeps time.
func (t *timebase) compare(driver, stamp uint64) {
	if t.decided {
		return
	}
	if t.driver0 == 0 {
		t.driver0, t.stamp0 = driver, stamp
		return
	}
	passed, counted := nanos(driver-t.driver0), t.anchored(stamp)-nanos(t.driver0)
	if passed < compareSpan {
		return
	}
	off := max(passed, counted) - min(passed, counted)
	t.decided, t.firmware = true, off <= passed/tolerance
}
