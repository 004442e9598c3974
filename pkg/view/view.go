// Package view is what readers see of the sessions: which sources there are,
// what their columns mean, and the rings that hold their rows. A supervisor
// publishes a new View when a session ends or begins; exposition and
// accumulate read it. Everything reachable from a View is immutable except the
// rows in the rings, which are read lock-free.
package view

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
)

// Source is one bound source.
type Source struct {
	Collector string // name of the collector
	Fields    field.List
	Devices   []collector.Device
	Columns   []collector.Column
	// Ring holds a row per tick: len(Devices) stamps (the time, in Unix
	// nanoseconds, at which the device was last sampled with success; 0 never)
	// and len(Columns) cells (unit of the column's Descriptor, NaN = blank).
	Ring *ring.Ring
	// Interval is the time between two rows.
	Interval time.Duration
	// Every says by device how often something of it is read; nil: in every row.
	Every []time.Duration
	// Explanations say why cells are blank (see Why), and Absent why devices have no columns.
	Explanations []collector.Explanation
	Absent       []collector.Absence
}

// WellFormed reports whether the rows have the shape that the source promises.
func (s *Source) WellFormed() bool {
	return s.Ring != nil && s.Ring.Stamps() == len(s.Devices) && s.Ring.Cells() == len(s.Columns) &&
		!slices.ContainsFunc(s.Columns, func(c collector.Column) bool { return c.Device < 0 || c.Device >= len(s.Devices) })
}

// StaleAfter is how old the newest sample of a device may be, given the limit for devices that
// are read in every row. A device of which only slow fields are read has three of their
// intervals: it must not leave the page between two readings.
func (s *Source) StaleAfter(device int, limit time.Duration) time.Duration {
	return max(limit, 3*s.IntervalOf(device))
}

// Why says why a cell of a column is blank: v is NaN.
func (s *Source) Why(column int, v float64) collector.Explanation {
	b := collector.BlankOf(v)
	switch d, known := field.ByID(s.Columns[column].Field); {
	case b.Implausible && known:
		return collector.Explanation{
			Reason: collector.ReasonImplausible,
			Detail: strings.TrimSpace(fmt.Sprintf("the library says %g, which is outside of %g to %g %s", b.Value, d.Min, d.Max, d.Unit)),
		}
	case b.NotSampled:
		return collector.Explanation{Reason: collector.ReasonNotDue, Detail: "not read yet"}
	case b.Explanation >= 0 && b.Explanation < len(s.Explanations):
		return s.Explanations[b.Explanation]
	}
	return collector.Explanation{Reason: collector.ReasonBlank, Detail: "the library has no value now"}
}

// IntervalOf is how often something of a device is read.
func (s *Source) IntervalOf(device int) time.Duration {
	if device < len(s.Every) {
		return s.Every[device]
	}
	return s.Interval
}

// View is all sources at one time, in order of collector priority and then in
// the order of the collector.
type View struct {
	Version uint64 // grows with every change
	Sources []*Source

	former  atomic.Pointer[View] // on the Board before this one
	readers int32                // of the Board that read all Views, when it was stored
	seen    atomic.Int32         // by so many of them
}

// maxFormer is how many Views a reader of all can be behind: reloads come a few a second.
const maxFormer = 32

// After returns the Views that were on the Board after last, in order, of which v is the
// last one, and forgets those before v if all readers (AddReader) have asked. With it a
// reader of every row sees also those of sources that were on the Board between two of its
// readings. A reader calls it once for a View.
func (v *View) After(last *View) []*View {
	out := []*View{v}
	for f := v.former.Load(); f != nil && f != last && len(out) < maxFormer; f = f.former.Load() {
		out = append(out, f)
	}
	if v.seen.Add(1) >= v.readers {
		v.former.Store(nil)
	}
	slices.Reverse(out)
	return out
}

// Board holds the current View. The zero Board holds an empty View.
type Board struct {
	p       atomic.Pointer[View]
	readers atomic.Int32
}

// AddReader says that there is a reader more that calls After for the Views of this Board.
// It must do so until the end.
func (b *Board) AddReader() { b.readers.Add(1) }

// Load returns the current View, never nil.
func (b *Board) Load() *View {
	if v := b.p.Load(); v != nil {
		return v
	}
	return &empty
}

// Store replaces the View. v must not be changed afterwards. One call at a time.
func (b *Board) Store(v *View) {
	v.readers = b.readers.Load()
	v.former.Store(b.p.Load())
	b.p.Store(v)
	f := v
	for n := 0; f != nil && n < maxFormer; n++ {
		f = f.former.Load()
	}
	if f != nil {
		f.former.Store(nil) // if no reader follows the Views
	}
}

var empty View
