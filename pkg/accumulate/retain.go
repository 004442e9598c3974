package accumulate

import (
	"slices"
	"strings"
	"time"

	"warpgauge/pkg/collector"
)

// What no View has any more is kept for a while, so that the counters of a
// device that comes back go on where they were, and then forgotten.
const (
	retainFor  = time.Hour
	retainMax  = 4096 // unused states; the longest unused go first
	sweepEvery = time.Minute
)

// key finds a state again in the next View.
type key struct{ device, field, labels string }

// Names in key.field of states that are not histograms; no metric can have them.
const (
	stateProgress = " progress"
	stateXIDs     = " xids"
	stateClocks   = " clock events"
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

// memory holds the states of all series, used by the current View or not.
type memory struct {
	held  map[key]*held
	era   uint64 // grows with each View
	inUse int    // how many of held the View uses
	swept int64  // position of the last sweep
}

type held struct {
	state  any
	era    uint64 // the last View that used it
	unused int64  // position since which no View has
}

// claim returns the state for k, made by fresh if there is none that fits. It
// reports false if another series of the same View has claimed it: a device or
// a line that is there twice would otherwise be counted twice.
func claim[T any](m *memory, k key, fits func(T) bool, fresh func() T) (T, bool) {
	h := m.held[k]
	if h != nil && h.era == m.era {
		var none T
		return none, false
	}
	if h == nil || !fits(h.state.(T)) {
		h = &held{state: fresh()}
		m.held[k] = h
	}
	h.era = m.era
	return h.state.(T), true
}

func always[T any](T) bool { return true }

// settle notes, after a new View has claimed its states, which of the others
// went out of use at position now.
func (m *memory) settle(now int64) {
	m.inUse = 0
	for _, h := range m.held {
		switch h.era {
		case m.era:
			m.inUse++
		case m.era - 1:
			h.unused = now
		}
	}
	m.sweep(now)
}

// tick sweeps if it is time to.
func (m *memory) tick(now int64) {
	if now-m.swept >= int64(sweepEvery) {
		m.sweep(now)
	}
}

// sweep forgets what has been unused for too long or is too much.
func (m *memory) sweep(now int64) {
	m.swept = now
	var unused []key
	for k, h := range m.held {
		switch {
		case h.era == m.era:
		case now-h.unused > int64(retainFor):
			delete(m.held, k)
		default:
			unused = append(unused, k)
		}
	}
	if len(unused) <= retainMax {
		return
	}
	slices.SortFunc(unused, func(a, b key) int { return int(min(max(m.held[a].unused-m.held[b].unused, -1), 1)) })
	for _, k := range unused[:len(unused)-retainMax] {
		delete(m.held, k)
	}
}
