// Package accumulate turns the stream of sampled rows into what a scrape cannot see: histograms at the
// sampling rate, and counts of XIDs and clock events. It follows a rows.Reader on the serving side of the
// rings, so that its counts survive the sampling side.
//
// The Reader must read before the writers lap the rings (16 to 1,024 rows each), with or without scrapes.
package accumulate

import (
	"cmp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/rows"
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
	// Created is the start of the count in Value, in Unix nanoseconds; 0: not started. It is nil for the
	// count of a window. Sync changes it, as it changes Value.
	Created *int64
}

// Options of New. Rows is required; the other fields may be zero.
type Options struct {
	XIDWindow        time.Duration // window of DCGM_EXP_XID_ERRORS_COUNT; 0 means 5 minutes
	ClockEventWindow time.Duration // window of DCGM_EXP_CLOCK_EVENTS_COUNT; 0 means 5 minutes
	Rows             *rows.Reader  // reads the rows to count
}

// defaultWindow is dcgm-exporter's.
const defaultWindow = 5 * time.Minute

// Store holds everything that is accumulated. Its lock guards the data that Series point to: readers hold it.
// Nothing that waits for hardware holds it.
type Store struct {
	sync.Mutex
	reader      *rows.Reader
	xidWindow   time.Duration
	clockWindow time.Duration

	axis     axis
	states   map[string]map[key]*held // by device
	bindings uint64                   // number of Views
	view     *view.View               // of follows
	follows  []*follow
	changed  bool // the set of series, since it was made

	series  []Series
	version uint64

	gaps *prometheus.CounterVec
	rows uint64 // counted so far
}

// New returns an empty Store.
func New(o Options) *Store {
	s := &Store{
		reader:      o.Rows,
		xidWindow:   cmp.Or(o.XIDWindow, defaultWindow),
		clockWindow: cmp.Or(o.ClockEventWindow, defaultWindow),
		states:      make(map[string]map[key]*held),
		gaps:        prometheus.NewCounterVec(prometheus.CounterOpts{Name: "warpgauge_event_gaps_total", Help: "Times in which XIDs of the device may have been missed, because nothing listened. Absent until the first."}, []string{"collector", "device", "gpu"}),
	}
	s.reader.Follow(s)
	return s
}

// Sync reads the new rows and returns the View that Series belong to. It allocates nothing unless the View or the set of
// series changed. State is kept by device id, field name and labels, until the reader forgets the device (rows.Forgetter).
func (s *Store) Sync(now time.Time) *view.View {
	s.reader.Sync(now)
	s.Lock()
	defer s.Unlock()
	s.axis.advance(now)
	if s.changed {
		s.changed = false
		s.list()
	}
	for _, f := range s.follows {
		for i := range f.xids {
			f.xids[i].refresh(s.axis.now)
		}
		for i := range f.clocks {
			f.clocks[i].refresh(s.axis.now)
		}
	}
	return s.view
}

// Rows returns the number of counted rows. The caller holds the lock.
func (s *Store) Rows() uint64 { return s.rows }

// Version changes whenever the set of Series changes.
func (s *Store) Version() uint64 { return s.version }

// Series returns the series of the last synced View. The slice is immutable. The data behind its entries
// changes: hold the lock to read it.
func (s *Store) Series() []Series { return s.series }

func (s *Store) list() {
	s.series = nil
	window := label("window_size_in_ms", strconv.FormatInt(s.xidWindow.Milliseconds(), 10))
	clockWindow := label("window_size_in_ms", strconv.FormatInt(s.clockWindow.Milliseconds(), 10))
	for _, f := range s.follows {
		for i := range f.histograms {
			t := &f.histograms[i]
			s.series = append(s.series, Series{Source: f.source, Device: t.device, Field: t.field, Labels: t.labels, Histogram: t.Histogram})
		}
		for i := range f.xids {
			t := &f.xids[i]
			for _, fd := range t.fields {
				s.listXIDs(f, t, fd, window)
			}
		}
		for i := range f.clocks {
			t := &f.clocks[i]
			for _, fd := range t.fields {
				s.listClocks(f, t, fd, clockWindow)
			}
		}
	}
	s.version++
}

// listXIDs lists the series of a device. As in dcgm-exporter, COUNT has a series for each code within the window, or
// one zero without the label xid. Unlike dcgm-exporter, it counts events, not samples that repeat the last code. TOTAL
// has a series for each known (knownXIDs) or seen code, and none without xid, so that sum() is the number of XIDs.
func (s *Store) listXIDs(f *follow, t *xidTap, fd *field.Field, window collector.Label) {
	add := func(value *float64, created *int64, labels ...collector.Label) {
		s.series = append(s.series, Series{Source: f.source, Device: t.device, Field: fd, Labels: labels, Value: value, Created: created})
	}
	if fd.Desc.ID == field.XIDErrorsCount {
		add(&t.none, nil, window)
	}
	for _, c := range t.codes {
		xid := label("xid", c.label())
		switch {
		case fd.Desc.ID == field.XIDErrorsTotal:
			add(&c.total, &t.created, xid)
		case c.seen:
			add(&c.inWindow, nil, window, xid)
		}
	}
}

// listClocks lists a series for every reason, zeros included, unlike dcgm-exporter: increase() sees the first
// onset, and a quiet GPU differs from a GPU without the reading. The value counts events, not samples, so it
// does not depend on the interval.
func (s *Store) listClocks(f *follow, t *clockTap, fd *field.Field, window collector.Label) {
	for i := range t.reasons {
		reason, _ := field.ClockReason(i)
		labels := append(slices.Clone(t.labels), label("clock_event", reason))
		value, created := &t.reasons[i].total, &t.created
		if fd.Desc.ID == field.ClockEventsCount {
			labels = append(labels, window)
			value, created = &t.reasons[i].inWindow, nil
		}
		slices.SortFunc(labels, func(a, b collector.Label) int { return cmp.Compare(a.Name, b.Name) })
		s.series = append(s.series, Series{Source: f.source, Device: t.device, Field: fd, Labels: labels, Value: value, Created: created})
	}
}

func label(name, value string) collector.Label { return collector.Label{Name: name, Value: value} }
