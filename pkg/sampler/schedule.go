package sampler

import (
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// schedule says which columns of a source are due on which tick. It belongs to
// the source's goroutine.
type schedule struct {
	tick   time.Duration // shortest interval of any column
	groups []dueGroup
	due    []bool // by column; rewritten by at
}

// dueGroup is the columns that share an interval.
type dueGroup struct {
	every   uint64 // ticks
	next    uint64 // number of the tick on which they are due
	columns []int
}

// newSchedule gives each column the interval that the list asks for, or else
// the default of its reading's cost class. Intervals are rounded to whole ticks.
func newSchedule(columns []collector.Column, fields field.List, o Options) *schedule {
	wanted := make(map[field.ID]time.Duration)
	for _, r := range fields.Readings() {
		wanted[r.Desc.ID] = interval(r, o)
	}
	intervals := make([]time.Duration, len(columns))
	s := &schedule{tick: o.Interval, due: make([]bool, len(columns))}
	for i, c := range columns {
		intervals[i] = o.Interval
		if d, ok := wanted[c.Field]; ok {
			intervals[i] = max(d, MinInterval)
		}
		s.tick = min(s.tick, intervals[i])
	}
	byEvery := make(map[uint64]int)
	for i, d := range intervals {
		every := uint64((d + s.tick/2) / s.tick)
		g, ok := byEvery[every]
		if !ok {
			g = len(s.groups)
			byEvery[every] = g
			s.groups = append(s.groups, dueGroup{every: every})
		}
		s.groups[g].columns = append(s.groups[g].columns, i)
	}
	return s
}

// interval returns the shortest interval that any field with this reading wants.
func interval(r field.Reading, o Options) time.Duration {
	switch {
	case r.Interval == 0:
		return defaultInterval(r.Desc, o)
	case r.Default:
		return min(r.Interval, defaultInterval(r.Desc, o))
	}
	return r.Interval
}

func defaultInterval(d *field.Descriptor, o Options) time.Duration {
	switch {
	case d.Event:
		return o.Interval
	case d.Cost == field.Slow:
		return o.SlowInterval
	case d.Cost == field.Static:
		return o.StaticInterval
	}
	return o.Interval
}

// at returns the columns due on tick n. Ticks may be skipped but not repeated;
// what was due on a skipped tick is due on the next.
func (s *schedule) at(n uint64) []bool {
	for i := range s.groups {
		g := &s.groups[i]
		due := n >= g.next
		if due {
			g.next = n - n%g.every + g.every
		}
		for _, c := range g.columns {
			s.due[c] = due
		}
	}
	return s.due
}

// retry makes everything due again on the next tick: after a failed call the
// slow columns would otherwise wait for their next turn without a value.
func (s *schedule) retry() {
	for i := range s.groups {
		s.groups[i].next = 0
	}
}
