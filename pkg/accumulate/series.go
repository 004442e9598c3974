package accumulate

import (
	"cmp"
	"slices"
	"strconv"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// list makes the set of series.
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

// listXIDs lists the series of a device. As in dcgm-exporter, COUNT has a series
// for each code within the window, or one zero without the label xid if there is
// none; unlike there, it counts events, not samples that repeat the last code.
// TOTAL has a series for each code that is known (knownXIDs) or was seen, and
// none without xid, so that sum() is the number of XIDs.
func (s *Store) listXIDs(f *follow, t *xidTap, fd *field.Field, window collector.Label) {
	add := func(value *float64, labels ...collector.Label) {
		s.series = append(s.series, Series{Source: f.source, Device: t.device, Field: fd, Labels: labels, Value: value})
	}
	if fd.Desc.ID == field.XIDErrorsCount {
		add(&t.none, window)
	}
	for _, c := range t.codes {
		xid := label("xid", c.label())
		switch {
		case fd.Desc.ID == field.XIDErrorsTotal:
			add(&c.total, xid)
		case c.seen:
			add(&c.inWindow, window, xid)
		}
	}
}

// listClocks lists a series for every reason. Unlike in dcgm-exporter, those that
// did not occur are there, at zero: increase() sees the first onset, and a quiet
// GPU can be distinguished from one without the reading. And the value is the number of
// events, not of samples, so it does not depend on the interval.
func (s *Store) listClocks(f *follow, t *clockTap, fd *field.Field, window collector.Label) {
	for i := range t.reasons {
		reason, _ := field.ClockReason(i)
		labels := append(slices.Clone(t.labels), label("clock_event", reason))
		value := &t.reasons[i].total
		if fd.Desc.ID == field.ClockEventsCount {
			labels = append(labels, window)
			value = &t.reasons[i].inWindow
		}
		slices.SortFunc(labels, func(a, b collector.Label) int { return cmp.Compare(a.Name, b.Name) })
		s.series = append(s.series, Series{Source: f.source, Device: t.device, Field: fd, Labels: labels, Value: value})
	}
}

func label(name, value string) collector.Label { return collector.Label{Name: name, Value: value} }
