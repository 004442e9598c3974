package accumulate

import (
	"fmt"
	"maps"

	"warpgauge/pkg/collector"
)

// maxStates: a device with so many loses those that no series of the View uses, and again whenever they have doubled.
const maxStates = 1024

// key identifies a state of a device across Views.
type key struct{ field, labels string }

// Names in key.field of states other than histograms; no metric can have them.
const (
	stateXIDs   = " xids"
	stateClocks = " clock events"
)

func keyOf(field string, labels []collector.Label) key {
	if len(labels) == 0 {
		return key{field: field}
	}
	return key{field, fmt.Sprintf("%q", labels)}
}

// held is the state of a series.
type held struct {
	state   any
	binding uint64 // the last one that used it
}

// claim returns the state for k among those of a device, or a fresh one if none fits. It reports false if another
// series of the same View has claimed it: a device or line that is listed twice would otherwise count twice.
func claim[T any](s *Store, kept map[any]any, k key, fits func(T) bool, fresh func() T) (T, bool) {
	h, _ := kept[k].(*held)
	if h != nil && h.binding == s.bindings {
		var none T
		return none, false
	}
	if h == nil || !fits(h.state.(T)) {
		if n := len(kept); n >= maxStates && n&(n-1) == 0 {
			maps.DeleteFunc(kept, func(_, v any) bool { h, ours := v.(*held); return ours && h.binding != s.bindings })
		}
		h = &held{state: fresh()}
		kept[k] = h
	}
	h.binding = s.bindings
	return h.state.(T), true
}

func always[T any](T) bool { return true }
