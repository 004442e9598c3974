// Package view describes the sessions to readers: the sources, the meaning of their columns, and the rings with their
// rows. A supervisor publishes a new View when a session ends or begins. Everything reachable from a View is immutable
// except the rows in the rings, which are read lock-free. The package starts no goroutine.
package view

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
)

// Row is a copy of one row of a source's ring.
type Row = ring.Row

// Source is one bound source. Its JSON, for another process, omits the fields that this process can supply itself.
type Source struct {
	Collector string     `json:"-"` // name of the collector
	Fields    field.List `json:"-"`
	Devices   []collector.Device
	Columns   []collector.Column
	// Ring holds a row per tick: len(Devices) stamps (Unix nanoseconds of the device's last successful sample; 0:
	// never) and len(Columns) cells (in the unit of the column's Descriptor, NaN = blank).
	Ring *ring.Ring `json:"-"`
	// Interval is the time between two rows.
	Interval time.Duration
	// Every holds, by device, the interval of its fastest reading. nil: every row has every device.
	Every []time.Duration `json:",omitempty"`
	// Explanations hold the reasons of blank cells (see Why), and Absent the reasons of absent columns.
	Explanations []collector.Explanation `json:",omitempty"`
	Absent       []collector.Absence     `json:",omitempty"`
}

// WellFormed reports whether the rows have the source's shape.
func (s *Source) WellFormed() bool {
	return s.Ring != nil && s.Ring.Stamps() == len(s.Devices) && s.Ring.Cells() == len(s.Columns) &&
		!slices.ContainsFunc(s.Columns, func(c collector.Column) bool { return c.Device < 0 || c.Device >= len(s.Devices) })
}

// Latest reads the newest row. It returns false if there is none with the source's columns.
func (s *Source) Latest(row *Row) bool { return s.WellFormed() && s.Ring.Latest(row) }

// StaleAfter returns the maximum age of a device's newest sample, given the limit for devices that are read in every row. A
// device with only slow fields has three of their intervals, so that it does not leave the page between two readings.
func (s *Source) StaleAfter(device int, limit time.Duration) time.Duration {
	return max(limit, 3*s.IntervalOf(device))
}

// Why returns the reason of a blank cell, whose value v is NaN.
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

// IntervalOf returns the interval of a device's fastest reading.
func (s *Source) IntervalOf(device int) time.Duration {
	if device < len(s.Every) {
		return s.Every[device]
	}
	return s.Interval
}

// Added returns the names of the readings that devices have although their lists do not name them: those of the lists'
// dialect, or those of extensions.
func Added(sources []*Source, dialect bool) (names []string) {
	seen := map[field.ID]bool{}
	for _, s := range sources {
		for _, c := range s.Columns {
			d, known := field.ByID(c.Field)
			known = known && c.Field != field.XIDsSince && c.Field != field.XIDsUntil
			if known && !seen[c.Field] && s.Fields.Hides(c.Field) && s.Fields.Dialect.Shows(c.Field) == dialect {
				names = append(names, d.Name)
			}
			seen[c.Field] = true
		}
	}
	return names
}

// View holds all sources at one time, by collector priority and then in the order of the collector.
type View struct {
	Version uint64 // grows with every change
	Sources []*Source

	former  atomic.Pointer[View] // the previous View on the Board
	readers int32                // number of the Board's AddReader readers when this View was stored
	seen    atomic.Int32         // number of readers that have asked for it
}

// maxFormer bounds how many Views an AddReader reader may lag behind: there are a few reloads per second.
const maxFormer = 32

// After returns the Views that were on the Board after last, in order, up to v. It drops the links to earlier Views
// once all AddReader readers have called it. So such a reader also sees the rows of sources that came and went between
// two of its readings. A reader must call it once for each View.
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

// AddReader registers a reader that calls After for every View of this Board until the end.
func (b *Board) AddReader() { b.readers.Add(1) }

// Load returns the current View, never nil.
func (b *Board) Load() *View {
	if v := b.p.Load(); v != nil {
		return v
	}
	return &empty
}

// Store replaces the View. v must not be changed afterwards. Calls must not overlap.
func (b *Board) Store(v *View) {
	v.readers = b.readers.Load()
	v.former.Store(b.p.Load())
	b.p.Store(v)
	f := v
	for n := 0; f != nil && n < maxFormer; n++ {
		f = f.former.Load()
	}
	if f != nil {
		f.former.Store(nil) // no reader follows the Views
	}
}

var empty View

// Every calls f now and at each full period of the wall clock until ctx ends, and returns nil.
func Every(ctx context.Context, period time.Duration, f func(now time.Time)) error {
	for {
		f(time.Now())
		select {
		case <-ctx.Done():
			return nil
		case <-Tick(period):
		}
	}
}

// Tick returns a channel that receives at the next full period of the wall clock. Those who look at a Board from time to
// time wait for it, so that they wake an idle process together: a wakeup costs more CPU time than their work.
func Tick(period time.Duration) <-chan time.Time {
	return time.After(time.Until(time.Now().Truncate(period).Add(period)))
}

// Offer sends a value if the channel takes it at once, and reports whether it did.
func Offer[T any](c chan<- T, v T) bool {
	select {
	case c <- v:
		return true
	default:
		return false
	}
}
