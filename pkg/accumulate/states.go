package accumulate

const (
	maxStates = 1024 // of a device in a View; further series are not counted
	maxUnused = 4096 // states that no series of the View uses, of all devices; above it, any are forgotten
)

// key identifies a state of a device across Views.
type key struct{ field, labels string }

// Names in key.field of states other than histograms; no metric can have them.
const (
	stateXIDs   = " xids"
	stateClocks = " clock events"
)

// held is the state of a series.
type held struct {
	state   any
	binding uint64 // the last one that used it
}

// claim returns the state for k of a device of f, or a fresh one if none fits. It reports false if the device has too
// many, or another series of the same View has claimed it: a device or line that is listed twice would count twice.
func claim[T any](s *Store, f *follow, device int, k key, fits func(T) bool, fresh func() T) (state T, ok bool) {
	id := f.source.Devices[device].ID
	h := s.states[id][k]
	if h != nil && h.binding == s.bindings || f.claims[device] == maxStates {
		return state, false
	}
	if h == nil || !fits(h.state.(T)) {
		if s.states[id] == nil {
			s.states[id] = make(map[key]*held)
		}
		h = &held{state: fresh()}
		s.states[id][k] = h
	}
	f.claims[device]++
	h.binding = s.bindings
	return h.state.(T), true
}

func always[T any](T) bool { return true }
