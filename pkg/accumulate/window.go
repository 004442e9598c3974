package accumulate

import "time"

// windowSlots is the resolution of a window: an event counts for the window and up to a 60th of it longer.
const windowSlots = 60

// window counts the events of a span that ends now, in a fixed number of slots. Times are positions of the
// Store's axis, in nanoseconds, and never negative. The zero window is empty.
type window struct {
	slots  [windowSlots + 1]uint32 // one more, for the slot that is being left
	newest int64                   // number of the slot with now
	sum    uint64
}

func slotWidth(span time.Duration) int64 { return max(int64(span)/windowSlots, 1) }

// add counts n events at position at, which is not after now.
func (w *window) add(at, now, width int64, n uint32) {
	w.move(now, width)
	slot := at / width
	if slot > w.newest-int64(len(w.slots)) {
		w.slots[slot%int64(len(w.slots))] += n
		w.sum += uint64(n)
	}
}

// count returns the events within the window that ends now.
func (w *window) count(now, width int64) uint64 {
	if w.sum != 0 {
		w.move(now, width)
	}
	return w.sum
}

// move empties the slots that now has reached.
func (w *window) move(now, width int64) {
	slot := now / width
	for n := min(slot-w.newest, int64(len(w.slots))); n > 0; n-- {
		i := (slot - n + 1) % int64(len(w.slots))
		w.sum -= uint64(w.slots[i])
		w.slots[i] = 0
	}
	w.newest = max(w.newest, slot)
}

// axis maps the wall-clock times of rows to a scale without steps of the clock. It measures a row's age by
// wall-clock time when the row is read, and subtracts it from the monotonic now.
type axis struct {
	epoch time.Time
	wall  int64 // Unix ns of now
	now   int64 // position of now: axisStart and the ns since epoch; never falls
}

// axisStart is the position of the epoch: 36 years, so that rows from before have positions, too.
const axisStart = 1 << 60

func (a *axis) advance(now time.Time) {
	if a.epoch.IsZero() {
		a.epoch = now
	}
	a.wall = now.UnixNano()
	a.now = max(a.now, axisStart+int64(now.Sub(a.epoch)))
}

// position returns the position of a row's time (Unix ns): at most now, and 0 if the time makes no sense.
func (a *axis) position(rowTime int64) int64 {
	return max(a.now-max(a.wall-max(rowTime, 0), 0), 0)
}
