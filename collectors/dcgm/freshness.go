//go:build linux && cgo

package dcgm

import (
	"fmt"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// patience is for how long values that are read so often may be without a new one.
func patience(every time.Duration) time.Duration { return max(4*every, 3*time.Second) }

// freshness watches the time stamps of a device's values. DCGM answers with the
// last value for ever, also when the driver hangs: the only sign is that its time
// stamps do not move. A device stalls when none has moved for its patience. It is
// fresh again when no call for half of it has found them unmoved: one poll that comes
// through a driver in trouble does not end a stall.
type freshness struct {
	patience time.Duration
	read     bool      // the engine has read something of the device
	moved    time.Time // of our clock: when a stamp last changed
	stalled  bool
	again    time.Time // while stalled: since when stamps have moved; zero: they do not
}

// newFreshness takes how often the engine reads the device's fastest value.
func newFreshness(every time.Duration, now time.Time) freshness {
	return freshness{patience: patience(every), moved: now}
}

// see takes whether a time stamp differs from the one before. One that was set
// back with the engine's clock does, too.
func (f *freshness) see(moved bool, now time.Time) {
	gap := now.Sub(f.moved)
	switch {
	case !moved && gap > f.patience/2:
		f.stalled, f.again = f.stalled || gap > f.patience, time.Time{}
		return
	case !moved:
		return
	case !f.read: // the first poll was slow
		f.stalled = false
	case f.stalled && f.again.IsZero():
		f.again = now
	case f.stalled && now.Sub(f.again) >= f.patience/2:
		f.stalled = false
	}
	f.read, f.moved = true, now
}

// verdict is nil for a device whose values move.
func (f *freshness) verdict(now time.Time) error {
	switch still := now.Sub(f.moved).Round(time.Second); {
	case !f.read:
		return fmt.Errorf("%w: the host engine has read no value of it for %v", collector.ErrStalled, still)
	case f.stalled && !f.again.IsZero():
		return errRecovering
	case f.stalled:
		return fmt.Errorf("%w: the host engine has read no new value for %v", collector.ErrStalled, still)
	}
	return nil
}

var (
	// errStarting is of a source whose first poll is under way.
	errStarting = fmt.Errorf("%w: the host engine is reading it for the first time", collector.ErrStalled)
	// errRecovering is of a device that has stalled and has new values.
	errRecovering = fmt.Errorf("%w: the host engine has just begun to read new values", collector.ErrStalled)
)

// blanked notices a GPU of which every value has become blank. An engine keeps
// answering for one that fell off the bus, with a good status and new time stamps,
// and only no longer lists it as supported. It reads one field after the other, so
// that the values disappear in more than one read.
type blanked struct {
	values int64 // Unix µs: the newest time stamp of a block with values in this read, 0 none
	blanks int64 // the same of blocks that have blanks alone now and had values
	gone   int   // values that those had at best
}

// goneAtLeast is how many values must have become blank: one or two may be of a
// kind that comes and goes.
const goneAtLeast = 3

// errBlanked makes the session look for devices at once.
var errBlanked = fmt.Errorf("%w: every value that the host engine had of it is blank", collector.ErrDeviceLost)

// add takes what a block has of an entity. Profiling fields can be paused, so that
// their blanks say nothing.
func (h *blanked) add(b *block, e, values, blanks int, newest int64) {
	switch {
	case values > 0:
		b.most[e] = max(b.most[e], values)
		h.values = max(h.values, newest)
	case b.most[e] > 0 && blanks >= b.most[e] && !profiles(field.ID(b.fields[0])):
		h.gone += b.most[e]
		h.blanks = max(h.blanks, newest)
	}
}

// all reports whether all is blank, or what is not is older than the blanks by a time
// in which it would have been read again: a block that is read seldom keeps what it had.
func (h *blanked) all(within time.Duration) bool {
	return h.gone >= goneAtLeast && h.blanks-h.values > within.Microseconds()
}
