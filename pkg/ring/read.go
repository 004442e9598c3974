package ring

import (
	"math"
	"runtime"
	"slices"
)

// Row is a copy of one row. Reads reuse its buffers.
type Row struct {
	N      uint64 // number of the row, from 0
	Time   int64  // Unix ns, of the tick
	Stamps []int64
	Cells  []float64
}

// latestTries bounds Latest. A reader loses a race only if the writer laps the whole ring during one copy, so a second
// try almost always succeeds.
const latestTries = 8

// Latest copies the newest row into row, growing its buffers once. It returns false, with row's contents undefined, if
// there is no row yet or the writer lapped every try.
func (r *Ring) Latest(row *Row) bool {
	for range latestTries {
		head := r.Head()
		if head == 0 {
			return false
		}
		if r.copyRow(head-1, row) {
			return true
		}
	}
	return false
}

// copyRow copies row n. It returns false if the slot holds another row or is being written. The comment of Append shows
// both sides.
func (r *Ring) copyRow(n uint64, row *Row) bool {
	row.Stamps = slices.Grow(row.Stamps[:0], r.stamps)[:r.stamps]
	row.Cells = slices.Grow(row.Cells[:0], r.cells)[:r.cells]
	s := r.slot(n)
	if s[slotSeq].Load() != 2*n+2 {
		return false
	}
	row.N = n
	row.Time = int64(s[slotTime].Load())
	for i := range row.Stamps {
		row.Stamps[i] = int64(s[slotFixed+i].Load())
	}
	payload := s[slotFixed+r.stamps:][:r.cells]
	for i := range row.Cells {
		row.Cells[i] = math.Float64frombits(payload[i].Load())
	}
	whole := s[slotSeq].Load() == 2*n+2
	runtime.KeepAlive(r)
	return whole
}

// Follower reads every row of a ring once, in order, and counts the rows that the writer overwrote before. It
// belongs to one goroutine.
type Follower struct {
	ring     *Ring
	next     uint64
	overruns uint64
}

// Follow returns a Follower that starts with the oldest row still in the ring.
func (r *Ring) Follow() *Follower {
	f := &Follower{ring: r}
	if head := r.Head(); head > uint64(r.Rows()) {
		f.next = head - uint64(r.Rows())
	}
	return f
}

// Skip skips the unread rows.
func (f *Follower) Skip() { f.next = f.ring.Head() }

// maxLag is more rows than a writer appends in 300 years of 10 ms ticks.
const maxLag = 1 << 40

// Next copies the next unread row into row. It returns false when there is none. It always returns, whatever another
// process writes into a shared block.
func (f *Follower) Next(row *Row) bool {
	for range f.ring.Rows() + 1 {
		head := f.ring.Head()
		switch lag := head - f.next; {
		case head == f.next:
			return false
		case head < f.next, lag > maxLag: // the block was created again, or its writer is faulty
			f.next = head
			return false
		case lag > uint64(f.ring.Rows()):
			f.overruns += min(lag-uint64(f.ring.Rows()), maxLag)
			f.next = head - uint64(f.ring.Rows())
		}
		n := f.next
		f.next++
		if f.ring.copyRow(n, row) {
			return true
		}
		f.overruns++ // overwritten during the copy
	}
	return false
}

// Overruns returns how many rows the writer has overwritten before they were read.
func (f *Follower) Overruns() uint64 { return f.overruns }
