package dcgm

import "sync"

// xidLogSize bounds how many XIDs of a GPU are remembered. The engine hands out
// those of the last minutes again, and only these must be known.
const xidLogSize = 256

// xidLog says which XIDs of one GPU are in a row already, and whose. Two
// collectors live side by side at a reload; accumulate reads the old one's ring to
// its end and the new one's from there. So the younger leaves out what an older
// has told of, and the older leaves out nothing.
type xidLog struct {
	mu       sync.Mutex
	told     []toldXID
	readers  int
	baseline int64 // Unix µs: what is not newer happened before anybody listened
	based    bool
}

type toldXID struct {
	micros int64
	code   uint64
	reader int
}

// join adds a reader and returns its number. The first one's baseline is that of
// all.
func (l *xidLog) join(baseline int64) (reader int, from int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.based {
		l.baseline, l.based = baseline, true
	}
	l.readers++
	return l.readers, l.baseline
}

// tell reports whether a reader has to tell of an XID, and notes that it does.
func (l *xidLog) tell(reader int, micros int64, code uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if micros <= l.baseline {
		return false
	}
	for i := range l.told {
		t := &l.told[i]
		if t.micros != micros || t.code != code {
			continue
		}
		if t.reader <= reader {
			return false
		}
		t.reader = reader
		return true
	}
	if len(l.told) == xidLogSize { // they come in the order of time
		l.baseline = max(l.baseline, l.told[0].micros)
		l.told = append(l.told[:0], l.told[1:]...)
	}
	l.told = append(l.told, toldXID{micros, code, reader})
	return true
}
