//go:build linux && cgo

package nvml

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
)

const (
	// logSize bounds the events of one board that wait for a row. A row takes a
	// few on each tick, so a storm is spread over the ticks that follow; what it
	// brings beyond this is lost, and said to be.
	logSize = 256

	// noInstance is NVML's id of a GPU or compute instance for "none".
	noInstance = 0xffffffff
)

// event is one that NVML told of a board.
type event struct {
	code   uint64 // the XID
	gi, ci uint32 // whom it concerns; noInstance: the whole GPU

	teller int // the oldest reader that has put it into a row; 0: none has
}

// lastXID is the newest XID of a GPU (gi is noInstance) or an instance.
type lastXID struct {
	gi, ci uint32
	code   uint64
	seq    uint64
}

// eventLog is what was heard of one board. The goroutine that listens writes it;
// sources read it, each through a logReader, and look at tail alone while
// nothing happens. The lock is held for a few memory accesses, never in a call
// into the library.
type eventLog struct {
	tail    atomic.Uint64 // number of the next event; stored under mu, after the event
	changed atomic.Uint64 // how often MIG was configured anew
	heard   atomic.Bool   // an event set is open

	mu      sync.Mutex
	ring    [logSize]event
	last    []lastXID
	codes   map[uint64]struct{} // XIDs that occurred; bounded by maxCodes
	readers int
}

// maxCodes bounds codes; a driver knows less than 200.
const maxCodes = 1024

// add logs an XID. It reports whether it is the first with this code.
func (l *eventLog) add(e event) (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seq := l.tail.Load()
	e.teller = 0
	l.ring[seq%logSize] = e
	i := slices.IndexFunc(l.last, func(x lastXID) bool { return x.gi == e.gi && x.ci == e.ci })
	if i < 0 {
		i, l.last = len(l.last), append(l.last, lastXID{gi: e.gi, ci: e.ci})
	}
	l.last[i].code, l.last[i].seq = e.code, seq
	if _, known := l.codes[e.code]; !known && len(l.codes) < maxCodes {
		if l.codes == nil {
			l.codes = make(map[uint64]struct{})
		}
		l.codes[e.code], first = struct{}{}, true
	}
	l.tail.Store(seq + 1)
	return first
}

// reconfigured notes that MIG was configured anew. Ids of instances are used
// again, so what happened to the old ones is forgotten; what no row has told of
// yet is the GPU's.
func (l *eventLog) reconfigured() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.ring {
		if e := &l.ring[i]; e.teller == 0 {
			e.gi, e.ci = noInstance, noInstance
		}
	}
	l.last = slices.DeleteFunc(l.last, func(x lastXID) bool { return x.gi != noInstance })
	l.changed.Add(1)
}

// has reports whether an XID with the code has occurred.
func (l *eventLog) has(code uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.codes[code]
	return ok
}

// newest writes the code of the newest XID of each device, as place assigns
// them, and leaves out those that had none.
func (l *eventLog) newest(codes []float64, place *placement) {
	l.mu.Lock()
	defer l.mu.Unlock()
	slices.SortFunc(l.last, func(a, b lastXID) int { return cmp.Compare(a.seq, b.seq) })
	for _, x := range l.last {
		codes[place.device(x.gi, x.ci)] = float64(x.code)
	}
}

// logReader hands out the events of a log one by one. It belongs to one source.
type logReader struct {
	log     *eventLog
	number  int    // readers that came later have higher ones
	next    uint64 // event to look at
	changed uint64 // of the log when the reader came
	lost    uint64 // events that were overwritten before they were handed out
}

// reader starts at the oldest event that is still there: what nobody has put
// into a row by now, at a reload say, the new one will.
func (l *eventLog) reader() logReader {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readers++
	tail := l.tail.Load()
	return logReader{log: l, number: l.readers, next: tail - min(tail, logSize), changed: l.changed.Load()}
}

// reconfigured reports whether MIG was configured anew since the reader came.
func (r *logReader) reconfigured() bool { return r.log.changed.Load() != r.changed }

// peek returns the next event that is to be put into a row. At a reload an old
// and a new source have a ring each, of which package accumulate reads the old
// one to its end and then the new one from there. So the younger reader leaves
// out what an older one has told of, and the older leaves out nothing.
func (r *logReader) peek() (event, bool) {
	if r.next == r.log.tail.Load() {
		return event{}, false
	}
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	tail := r.log.tail.Load()
	if oldest := tail - min(tail, logSize); r.next < oldest {
		r.lost += oldest - r.next
		r.next = oldest
	}
	for ; r.next < tail; r.next++ {
		if e := &r.log.ring[r.next%logSize]; e.teller == 0 || e.teller > r.number {
			return *e, true
		}
	}
	return event{}, false
}

// told says that the event that peek returned is in a row.
func (r *logReader) told() {
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	if tail := r.log.tail.Load(); tail-r.next <= logSize {
		if e := &r.log.ring[r.next%logSize]; e.teller == 0 || e.teller > r.number {
			e.teller = r.number
		}
	}
	r.next++
}
