// Package accumulate turns the stream of sampled rows into what a scrape can
// not see: histograms at the sampling rate, and counts of XIDs and clock events.
// It reads every row of every ring once, on the serving side of the rings, so
// that what it has counted survives the sampling side.
package accumulate

import (
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/view"
)

// Series is one accumulated series. Either Histogram is set or Value is.
type Series struct {
	Source    *view.Source
	Device    int               // index into Source.Devices
	Field     *field.Field      // name, type, help, scale
	Labels    []collector.Label // further labels (xid, clock_event, window_size_in_ms …), sorted by name
	Histogram *Histogram
	Value     *float64 // count within the window or since start; NaN = leave out
}

// Options of New. The zero value is usable.
type Options struct {
	XIDWindow        time.Duration // window of DCGM_EXP_XID_ERRORS_COUNT; 0 means 5 minutes
	ClockEventWindow time.Duration // window of DCGM_EXP_CLOCK_EVENTS_COUNT; 0 means 5 minutes
}

// Store holds everything that is accumulated. All methods must be called by one
// goroutine at a time: the caller serialises them (exposition does, under its
// render lock, which nothing that waits for hardware ever holds).
type Store struct{}

// New returns an empty Store.
func New(o Options) *Store { return nil }

// Sync brings every series up to date with the rows now in the rings of v. No
// allocation unless v or the set of series changed. State is kept by device id,
// field name and labels, so it survives a new View of the same devices.
func (s *Store) Sync(v *view.View, now time.Time) {}

// Version changes whenever the set of Series changes.
func (s *Store) Version() uint64 { return 0 }

// Series returns the series of the View that was synced last. The slice is
// immutable; what the entries point to changes with each Sync.
func (s *Store) Series() []Series { return nil }

// Overruns returns how many rows were overwritten before they were read.
func (s *Store) Overruns() uint64 { return 0 }
