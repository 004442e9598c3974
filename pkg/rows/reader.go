// Package rows reads the rows of all rings once, for all their followers: accumulated counts, the history,
// rules about devices. It binds the Views of a board one after the other, decides which source supplies a
// device, and which rows are new although consecutive sources may hold the same instants.
//
// A Reader calls its Followers under its lock, on any goroutine that reads. Only the goroutine of Run
// publishes the events. A Cursor serves one follower that has its own pace, such as a stream to a client.
package rows

import (
	"context"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"warpgauge/pkg/events"
	"warpgauge/pkg/field"
	"warpgauge/pkg/view"
)

// Follower gets every row of every ring once. One goroutine at a time calls it. It must only compute, because
// a scrape may wait for it.
type Follower interface {
	// Bind replaces the sources with those of another View. Their rows follow.
	Bind(v *view.View, sources []Source, now time.Time)
	// Row handles a row of the source with the index row.Source.
	Row(row *Row)
}

// Forgetter is a Follower that keeps state by device.
type Forgetter interface {
	// Forget drops the state of a device. The Reader calls it before a Bind, if the device left the Views more than a day
	// ago, or if many others have left.
	Forget(device string)
}

// Run reads the rings once in the shortest interval of a source, within these bounds. The fastest ring, of 10 ms ticks,
// holds 10 s.
const (
	minPause = 100 * time.Millisecond
	maxPause = time.Second
)

// maxQueue is the number of events that can wait for Run. New events are dropped and counted when it is full.
const maxQueue = 4096

// Reader reads all rows of a board.
type Reader struct {
	board    *view.Board
	bus      *events.Bus // nil: events are not published
	wake     chan struct{}
	overruns atomic.Uint64
	pause    atomic.Int64 // between two readings of Run, in ns
	dropped  atomic.Uint64

	mu        sync.Mutex // its holder only computes
	view      *view.View
	cursor    Cursor
	followers []Follower
	row       Row
	found     []events.Event
}

// New returns a Reader of board, which it must read until the end. The goroutine of Run publishes the events on
// bus, unless bus is nil.
func New(board *view.Board, bus *events.Bus) *Reader {
	board.AddReader()
	return &Reader{board: board, bus: bus, wake: make(chan struct{}, 1)}
}

// Follow adds a Follower, which gets the rows that are not read yet. It may be a Forgetter.
func (r *Reader) Follow(f Follower) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.followers = append(r.followers, f)
	if k, ok := f.(Forgetter); ok {
		r.cursor.forgetters = append(r.cursor.forgetters, k)
	}
	if r.view != nil {
		f.Bind(r.view, r.cursor.sources, r.row.Read)
	}
}

// Run reads and publishes until ctx ends.
func (r *Reader) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake: // another goroutine has read rows with events
		case <-view.Tick(max(time.Duration(r.pause.Load()), minPause)):
			r.Sync(time.Now())
		}
		r.publish()
	}
}

// Sync reads every new row of the board. Any goroutine may call it. On return the followers have all rows
// that were in the rings before the call.
func (r *Reader) Sync(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := r.board.Load()
	r.row.Read = now
	r.read() // also in rings that leave: their last rows are not read later
	if v != r.view {
		for _, next := range v.After(r.view) { // with sources that came and went since
			r.bind(next, now)
			r.read()
		}
	}
	r.overruns.Store(r.cursor.Overruns())
	if len(r.found) > 0 {
		view.Offer(r.wake, struct{}{})
	}
}

func (r *Reader) bind(v *view.View, now time.Time) {
	r.view = v
	sources := r.cursor.Bind(v, now)
	pause := maxPause
	for _, s := range sources {
		pause = min(pause, s.Interval)
	}
	r.pause.Store(int64(pause))
	for _, f := range r.followers {
		f.Bind(v, sources, now)
	}
}

// read gives every new row to the followers.
func (r *Reader) read() {
	for r.cursor.Next(&r.row) {
		for _, f := range r.followers {
			f.Row(&r.row)
		}
		if r.bus != nil && len(r.row.Gaps)+len(r.row.XIDs)+len(r.row.Masks) > 0 {
			r.queue()
		}
	}
}

// queue keeps the events of the row for Run.
func (r *Reader) queue() {
	s := &r.cursor.sources[r.row.Source]
	e := events.Event{Source: s.Collector, Time: time.Unix(0, r.row.Time)}
	for _, d := range r.row.Gaps {
		const text = "XIDs may have been missed: for a while nothing listened; see the kernel log"
		r.add(events.Event{Kind: events.CollectorState, Source: e.Source, Time: e.Time, Device: &s.Devices[d], Text: text})
	}
	for _, x := range r.row.XIDs {
		e.Kind, e.Device, e.Code = events.XID, &s.Devices[x.Device], CodeOf(x.Code)
		r.add(e)
	}
	e.Kind, e.Code = events.Clock, 0
	for _, m := range r.row.Masks {
		for began := m.Began; began != 0; began &= began - 1 {
			e.Device = &s.Devices[m.Device]
			e.Reason, _ = field.ClockReason(bits.TrailingZeros64(began))
			r.add(e)
		}
	}
}

// add keeps an event for Run. The caller holds the lock.
func (r *Reader) add(e events.Event) {
	if len(r.found) < maxQueue {
		r.found = append(r.found, e)
	} else {
		r.dropped.Add(1)
	}
}

// publish publishes the queued events, without the lock.
func (r *Reader) publish() {
	r.mu.Lock()
	found := r.found
	r.found = nil
	r.mu.Unlock()
	for i := range found {
		r.bus.Publish(found[i])
	}
}

// Overruns returns how many rows were overwritten before they were read, as of the last reading. Any goroutine may call it.
func (r *Reader) Overruns() uint64 { return r.overruns.Load() }

// Dropped returns how many events found the queue for Run full.
func (r *Reader) Dropped() uint64 { return r.dropped.Load() }

// CodeImpossible replaces codes that no XID has.
const CodeImpossible = -1

// CodeOf returns the code in a cell, or CodeImpossible if it makes no sense.
func CodeOf(cell float64) int {
	if cell > 0 && cell <= math.MaxUint32 && cell == math.Trunc(cell) {
		return int(cell)
	}
	return CodeImpossible
}
