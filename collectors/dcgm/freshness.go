//go:build linux && cgo

package dcgm

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// patience is for how long values that are read so often may be without a new one.
func patience(every time.Duration) time.Duration { return max(4*every, 3*time.Second) }

// polled reports whether the engine reads a field again and again. The others have a
// value since something has happened, and keep it.
func polled(id field.ID) bool {
	return id != 6 && (id < 350 || id > 363) // DCGM_FI_BIND_UNBIND_EVENT; results of diagnostics
}

// seen is what is known of a cell over time. DCGM answers with the last value for ever,
// also when the driver's call for it fails or hangs: the only sign is that its time stamp
// does not move. A value is gone when its stamp has not moved for the patience of its
// block. It is back when no read for half of that has found it unmoved: one poll that comes
// through a driver in trouble does not bring it back.
type seen struct {
	micros int64 // the engine's time stamp
	at     int64 // when the engine has read it, Unix µs of our clock
	moved  int64 // when the stamp last changed, µs since Open
	again  int64 // while it is gone: since when the stamp moves, µs since Open; 0: it does not
	gone   bool
}

// see takes the time stamp of a read. One that was set back with the engine's clock has
// moved, too. The value was read after the last read of ours, which did not have it, and
// before this one: an engine on another machine may have a clock of its own.
func (s *seen) see(micros int64, r *reading) {
	if micros == s.micros || micros == 0 {
		if still := r.now - s.moved; still > r.patience/2 {
			s.gone, s.again = s.gone || still > r.patience, 0
		}
		return
	}
	switch {
	case s.micros == 0: // the first poll was slow
		s.gone = false
	case s.gone && s.again == 0:
		s.again = r.now
	case s.gone && r.now-s.again >= r.patience/2:
		s.gone = false
	}
	s.micros, s.moved, s.at = micros, r.now, min(max(micros, r.before), r.clock)
}

// reading is one read of a block.
type reading struct {
	now      int64 // µs since Open, from 1
	clock    int64 // Unix µs
	before   int64 // Unix µs: when the block was read before; 0: never
	patience int64 // µs
}

// state is what one read of a block says of an entity.
type state struct {
	alive  bool  // something was read lately, if only blanks
	again  bool  // some are gone but about to be back
	oldest int64 // when the oldest of the values that are there was read, Unix µs; 0: there are blanks alone
	blank  int64 // when the newest of the blanks was read
	micros int64 // the newest time stamp of the engine
	moved  int64 // when a time stamp last changed, µs since Open
}

// add takes a cell that shows whether the engine reads the entity.
func (s *state) add(c *seen, value float64) {
	s.micros, s.moved = max(s.micros, c.micros), max(s.moved, c.moved)
	switch {
	case c.micros == 0:
	case c.gone:
		s.again = s.again || c.again != 0
	case math.IsNaN(value):
		s.alive, s.blank = true, max(s.blank, c.at)
	default:
		s.alive, s.oldest = true, earlier(s.oldest, c.at)
	}
}

// blockEntity is an entity of a block.
type blockEntity struct {
	block *block
	index int
}

func (p blockEntity) state() *state { return &p.block.states[p.index] }

// verdict is nil for a device that is read, by where it is read, in the order of the intervals.
// A device is read as often as its values that are read most often. If all of those
// stand, it is read if others have been since.
func verdict(read []blockEntity, now int64) (dated int64, err error) {
	first := read[0].block.every
	var most state
	for _, p := range read {
		s := p.state()
		if p.block.every == first {
			most.micros, most.moved, most.again = max(most.micros, s.micros), max(most.moved, s.moved), most.again || s.again
		}
		if later := p.block.every == first || s.micros > most.micros+patience(first).Microseconds(); s.alive && later {
			if dated == 0 || p.block.every == first {
				dated = earlier(dated, cmp.Or(s.oldest, s.blank))
			}
		}
	}
	still := (time.Duration(now-most.moved) * time.Microsecond).Round(time.Second)
	switch {
	case dated != 0:
		return dated, nil
	case most.micros == 0:
		return 0, fmt.Errorf("%w: the host engine has read no value of it for %v", collector.ErrStalled, still)
	case most.again:
		return 0, errRecovering
	}
	return 0, fmt.Errorf("%w: the host engine has read no new value for %v", collector.ErrStalled, still)
}

// earlier returns the earlier of two times, of which 0 is none.
func earlier(a, b int64) int64 {
	if a == 0 {
		return b
	}
	return min(a, b)
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
