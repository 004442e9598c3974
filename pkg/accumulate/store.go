// Package accumulate turns the stream of sampled rows into what a scrape can
// not see: histograms at the sampling rate, and counts of XIDs and clock events.
// It reads every row of every ring once, on the serving side of the rings, so
// that what it has counted survives the sampling side.
//
// A Store belongs to one goroutine at a time; only its own metrics may be read
// at the same time. Sync has to be called more often than the writers lap the rings
// (a ring holds at least 16 and at most 1,024 rows), scrape or no scrape.
package accumulate

import (
	"cmp"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/view"
)

// Series is one accumulated series. Either Histogram is set or Value is.
type Series struct {
	Source    *view.Source
	Device    int               // index into Source.Devices
	Field     *field.Field      // name, type, help, scale
	Labels    []collector.Label // further labels (xid, clock_event, window_size_in_ms …), sorted by name
	Histogram *Histogram        // leave it out while Count is 0
	Value     *float64          // count within the window or since start; NaN = leave out
}

// Options of New. The zero value is usable.
type Options struct {
	XIDWindow        time.Duration // window of DCGM_EXP_XID_ERRORS_COUNT; 0 means 5 minutes
	ClockEventWindow time.Duration // window of DCGM_EXP_CLOCK_EVENTS_COUNT; 0 means 5 minutes
}

// defaultWindow is dcgm-exporter's.
const defaultWindow = 5 * time.Minute

// Store holds everything that is accumulated. All methods must be called by one
// goroutine at a time: the caller serialises them (exposition does, under its
// render lock, which nothing that waits for hardware ever holds). Exempt are
// those of prometheus.Collector, and Overruns.
type Store struct {
	xidWindow   time.Duration
	clockWindow time.Duration

	axis    axis
	states  states
	view    *view.View // the one that follows are bound to
	follows []*follow
	row     ring.Row

	series  []Series
	version uint64

	rows         uint64 // read so far
	goneOverruns uint64 // of rings that are no longer in the View
	published    published
}

// New returns an empty Store.
func New(o Options) *Store {
	return &Store{
		xidWindow:   cmp.Or(o.XIDWindow, defaultWindow),
		clockWindow: cmp.Or(o.ClockEventWindow, defaultWindow),
		states:      states{held: make(map[key]*held)},
	}
}

// Sync brings every series up to date with the rows now in the rings of v. No
// allocation unless v or the set of series changed. State is kept by device id,
// field name and labels, so it survives a new View of the same devices, and for
// an hour a View without them.
func (s *Store) Sync(v *view.View, now time.Time) {
	s.axis.advance(now)
	changed := s.read() // of a ring that leaves, too: its last rows are not read later
	if v != s.view {
		s.bind(v)
		s.read()
		changed = true
	}
	if changed {
		s.list()
	}
	for _, f := range s.follows {
		f.refresh(s.axis.now)
	}
	s.states.tick(s.axis.now)
	s.publish()
}

// read takes every new row. It reports whether there are new series.
func (s *Store) read() (grew bool) {
	for _, f := range s.follows {
		// A writer that is faster than us cannot keep us here.
		for limit := 2 * f.source.Ring.Rows(); limit > 0 && f.rows.Next(&s.row); limit-- {
			s.rows++
			grew = f.take(&s.row, &s.axis) || grew
		}
	}
	return grew
}

// Version changes whenever the set of Series changes.
func (s *Store) Version() uint64 { return s.version }

// Series returns the series of the View that was synced last. The slice is
// immutable; what the entries point to changes with each Sync.
func (s *Store) Series() []Series { return s.series }
