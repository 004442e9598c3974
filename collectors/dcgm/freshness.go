//go:build linux && cgo

package dcgm

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// patience returns how long a value with this polling interval stays valid without a new one.
func patience(every time.Duration) time.Duration { return max(4*every, 3*time.Second) }

// polled reports whether the engine polls a field. Other fields get a value when something happens, and keep it.
func polled(id field.ID) bool {
	return id != 6 && (id < 350 || id > 363) // DCGM_FI_BIND_UNBIND_EVENT; results of diagnostics
}

// seen is the history of a cell. DCGM returns the last value for ever, even when the driver's call fails or hangs. The
// only sign is a frozen timestamp. A value is gone when its timestamp has been frozen for the patience of its block. It
// is back when the timestamp was new at every read for half of that time, so a single successful poll of a failing
// driver does not bring it back.
type seen struct {
	micros int64 // the engine's timestamp
	at     int64 // when the engine read it, Unix µs of our clock
	moved  int64 // when the timestamp last changed, µs since Open
	again  int64 // if it is gone: since when the timestamp changes again, µs since Open; 0 if frozen
	gone   bool
	round  int   // the device's round when the timestamp last changed
	blank  int64 // the engine's timestamp of the first blank after a profiling value; 0 if none
}

// see records the timestamp of a read and reports whether it has changed. A timestamp that went back with the engine's
// clock counts as a change. The clock of an engine on another machine may differ, so see limits the time of a new value:
// the engine read it after our previous read, which did not return it, and before this one.
func (s *seen) see(micros int64, r *reading) bool {
	if micros == s.micros || micros == 0 {
		if still := r.now - s.moved; still > r.patience/2 {
			s.gone, s.again = s.gone || still > r.patience, 0
		}
		return false
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
	return true
}

// reading is one read of a block.
type reading struct {
	now      int64 // µs since Open, from 1
	clock    int64 // Unix µs
	before   int64 // Unix µs of the previous read of the block; 0 before the first
	patience int64 // µs
}

// state is the result of one read of a block for an entity.
type state struct {
	alive  bool  // the engine read something recently, even if only blanks
	again  bool  // some values are gone but about to come back
	oldest int64 // when the oldest current value was read, Unix µs; 0 if all are blank
	blank  int64 // when the newest blank was read
	micros int64 // newest timestamp of the engine
	moved  int64 // when a timestamp last changed, µs since Open
}

// mergeCell adds a cell that shows whether the engine polls the entity.
func (s *state) mergeCell(c *seen, value float64) {
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

// pollTime returns when the host engine last read the device's oldest current value, or an error that wraps
// collector.ErrStalled if the engine has stopped polling the device. read holds the device's entry in each polling
// block, shortest interval first. The fastest block decides. If all its timestamps are frozen, a clearly newer
// timestamp in a slower block counts as polled.
func pollTime(read []blockEntity, now int64) (dated int64, err error) {
	first := read[0].block.every
	var fastest state
	for _, p := range read {
		s := &p.block.states[p.index]
		if p.block.every == first {
			fastest.micros, fastest.moved, fastest.again = max(fastest.micros, s.micros), max(fastest.moved, s.moved), fastest.again || s.again
		}
		if later := p.block.every == first || s.micros > fastest.micros+patience(first).Microseconds(); s.alive && later {
			if dated == 0 || p.block.every == first {
				dated = earlier(dated, cmp.Or(s.oldest, s.blank))
			}
		}
	}
	still := (time.Duration(now-fastest.moved) * time.Microsecond).Round(time.Second)
	switch {
	case dated != 0:
		return dated, nil
	case fastest.micros == 0:
		return 0, fmt.Errorf("%w: nv-hostengine has read no value of this device for %v", collector.ErrStalled, still)
	case fastest.again:
		return 0, errRecovering
	}
	return 0, fmt.Errorf("%w: nv-hostengine has not updated this device for %v", collector.ErrStalled, still)
}

// earlier returns the earlier of two times. 0 means no time.
func earlier(a, b int64) int64 {
	if a == 0 {
		return b
	}
	return min(a, b)
}

var (
	// errStarting means that the first poll of a source is not complete.
	errStarting = fmt.Errorf("%w: the host engine is reading it for the first time", collector.ErrStalled)
	errUnread   = errors.New("cannot read values") // of any device
	// errRecovering means that a stalled device has new values.
	errRecovering = fmt.Errorf("%w: the host engine has just begun to read new values", collector.ErrStalled)
)

// blanked detects a GPU whose values have all become blank. For a GPU that fell off the bus an engine keeps returning a
// good status and new timestamps; it only removes the GPU from the supported ones. The engine reads one field after the
// other, so the values disappear over more than one read.
type blanked struct {
	values int64 // Unix µs: newest timestamp of a block with values in this read; 0 without such a block
	blanks int64 // Unix µs: newest timestamp of a block that had values and has only blanks now
	gone   int   // maximum number of values that those blocks had
}

// goneAtLeast is the minimum number of values that must have become blank, because single values come and go.
const goneAtLeast = 3

// errBlanked makes the session rescan at once.
var errBlanked = fmt.Errorf("%w: every value that the host engine had of it is blank", collector.ErrDeviceLost)

// addBlock adds a block's values and blanks for an entity. Blank profiling fields mean nothing, because profiling can
// be paused.
func (h *blanked) addBlock(b *block, e, values, blanks int, newest int64) {
	switch {
	case values > 0:
		b.maxValues[e] = max(b.maxValues[e], values)
		h.values = max(h.values, newest)
	case b.maxValues[e] > 0 && blanks >= b.maxValues[e] && !field.ID(b.fields[0]).Profiling():
		h.gone += b.maxValues[e]
		h.blanks = max(h.blanks, newest)
	}
}

// all reports whether every value is blank. It ignores values that are older than the blanks by more than within: a slow
// block keeps old values.
func (h *blanked) all(within time.Duration) bool {
	return h.gone >= goneAtLeast && h.blanks-h.values > within.Microseconds()
}
