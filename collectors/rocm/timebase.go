package rocm

import (
	"time"

	gm "warpgauge/collectors/rocm/internal/gpumetrics"
)

// timebase is the time to which the counters of gpu_metrics belong. The
// firmware's own stamp is taken together with them; the driver's clock is taken
// when the file is read, which may be milliseconds later, as the driver keeps a
// table for up to 5 ms. So the stamp is used once it has been seen to go as fast
// as the driver's clock, which no document promises for every board.
type timebase struct {
	era      uint64
	firmware bool // the stamp is the time
	decided  bool
	driver0  uint64 // where the comparison began
	stamp0   uint64
	start    time.Time // for boards that have neither

	moved nanos // stamp when it last moved, and the driver's clock then
	at    nanos
}

const (
	stampUnit    = 10          // ns
	compareSpan  = nanos(1e9)  // long enough that the age of the table does not matter
	tolerance    = 20          // a twentieth
	frozenForNow = nanos(10e9) // a stamp that has not moved for so long means that nothing is measured
)

// reset begins a new era: what was counted before does not compare.
func (t *timebase) reset() { *t = timebase{era: t.era + 1} }

// read returns the time of m, and whether the firmware has stopped measuring.
func (t *timebase) read(m *gm.Metrics) (now nanos, frozen bool) {
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
		t.reset() // the GPU was reset, or has another source of time
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

// anchored is the stamp on the driver's clock, as if both had been read together
// when the comparison began: the change from one to the other costs no sample.
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
