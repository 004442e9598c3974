package accumulate

import (
	"strings"
	"time"

	"warpgauge/pkg/collector"
)

// States that no View uses stay for a while, so that the counters of a device that comes back continue.
const (
	retainFor  = time.Hour
	retainMax  = 4096 // unused states; above it, any are forgotten
	sweepEvery = time.Minute
)

// key identifies a state across Views.
type key struct{ device, field, labels string }

// Names in key.field of states other than histograms; no metric can have them.
const (
	stateXIDs   = " xids"
	stateClocks = " clock events"
)

func keyOf(device, field string, labels []collector.Label) key {
	if len(labels) == 0 {
		return key{device: device, field: field}
	}
	var b strings.Builder
	for _, l := range labels {
		b.WriteString(l.Name)
		b.WriteByte(0)
		b.WriteString(l.Value)
		b.WriteByte(0)
	}
	return key{device, field, b.String()}
}

// states holds the states of all series, used by the current View or not.
type states struct {
	held  map[key]*held
	view  uint64 // grows with each View
	inUse int    // how many of held the View uses
	swept int64  // position of the last sweep
}

type held struct {
	state  any
	view   uint64 // the last View that used it
	unused int64  // position since which no View uses it
}

// claim returns the state for k, or a fresh one if none fits. It reports false if another series of the same
// View has claimed it: a device or line that is listed twice would otherwise count twice.
func claim[T any](s *states, k key, fits func(T) bool, fresh func() T) (T, bool) {
	h := s.held[k]
	if h != nil && h.view == s.view {
		var none T
		return none, false
	}
	if h == nil || !fits(h.state.(T)) {
		h = &held{state: fresh()}
		s.held[k] = h
	}
	h.view = s.view
	return h.state.(T), true
}

func always[T any](T) bool { return true }

// bound records, after a new View has claimed its states, that the others are unused since position now.
func (s *states) bound(now int64) {
	s.inUse = 0
	for _, h := range s.held {
		switch h.view {
		case s.view:
			s.inUse++
		case s.view - 1:
			h.unused = now
		}
	}
	s.sweep(now)
}

func (s *states) tick(now int64) {
	if now-s.swept >= int64(sweepEvery) {
		s.sweep(now)
	}
}

// sweep drops states that were unused for too long, or are too many.
func (s *states) sweep(now int64) {
	s.swept = now
	for k, h := range s.held {
		if h.view != s.view && (now-h.unused > int64(retainFor) || len(s.held)-s.inUse > retainMax) {
			delete(s.held, k)
		}
	}
}
