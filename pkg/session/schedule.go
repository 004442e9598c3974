package session

import (
	"slices"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// schedule decides which columns of a source are due on which tick. It belongs to the source's goroutine.
type schedule struct {
	tick    time.Duration // shortest interval of any column, so that every tick has due columns
	groups  []dueGroup
	due     []bool // by column; rewritten by at
	devices []bool // by device: one of its columns is due; rewritten by at
}

// dueGroup is a set of columns that share an interval.
type dueGroup struct {
	every   uint64 // ticks
	next    uint64 // next tick on which they are due
	columns []int
	devices []int
}

// newSchedule gives each column the interval in the list, or else the default of its reading's cost class. Intervals
// are rounded to whole ticks.
func newSchedule(columns []collector.Column, devices int, fields field.List, o Options) *schedule {
	wanted := make(map[field.ID]time.Duration)
	for _, r := range fields.Readings() {
		wanted[r.Desc.ID] = interval(r, o)
	}
	intervals := make([]time.Duration, len(columns))
	s := &schedule{due: make([]bool, len(columns)), devices: make([]bool, devices)}
	for i, c := range columns {
		intervals[i] = o.Interval
		if d, ok := wanted[c.Field]; ok {
			intervals[i] = max(d, MinInterval)
		}
		if s.tick == 0 || intervals[i] < s.tick {
			s.tick = intervals[i]
		}
	}
	if s.tick == 0 { // a source without columns only has device states
		s.tick = o.Interval
		s.groups = []dueGroup{{every: 1}}
	}
	asked := fastest(columns, intervals)
	for _, i := range asked { // a device with slow fields only is asked for one of them on each tick: it may hang
		if intervals[i] > o.Deadline {
			intervals[i], s.tick = o.Interval, min(s.tick, o.Interval)
		}
	}
	byEvery := make(map[uint64]int)
	for i, d := range intervals {
		every := uint64((d + s.tick/2) / s.tick)
		at, ok := byEvery[every]
		if !ok {
			at = len(s.groups)
			byEvery[every] = at
			s.groups = append(s.groups, dueGroup{every: every})
		}
		g := &s.groups[at]
		g.columns = append(g.columns, i)
		device := columns[i].Device //nolint:gosec // there is an interval for each column
		if f, ok := asked[device]; !slices.Contains(g.devices, device) && (!ok || intervals[f] <= d) {
			g.devices = append(g.devices, device)
		}
	}
	for d := range devices {
		if slices.ContainsFunc(columns, func(c collector.Column) bool { return c.Device == d }) {
			continue
		}
		for i := range s.groups { // a device without columns is as fresh as its source
			s.groups[i].devices = append(s.groups[i].devices, d)
		}
	}
	return s
}

// Waits reports whether a column has a value only after an event or a buffered sample, which do not show that the device
// answers.
func Waits(c *collector.Column) bool {
	d, ok := field.ByID(c.Field)
	return ok && (d.Event || field.IsXID(d.ID)) || c.Buffer > 0
}

// fastest returns, by device, the column with the shortest interval, without those that wait.
func fastest(columns []collector.Column, intervals []time.Duration) map[int]int {
	out := map[int]int{}
	for i, c := range columns {
		if Waits(&c) {
			continue
		}
		if at, ok := out[c.Device]; !ok || intervals[i] < intervals[at] {
			out[c.Device] = i
		}
	}
	return out
}

// every returns, by device, the interval of its fastest column.
func (s *schedule) every() []time.Duration {
	out := make([]time.Duration, len(s.devices))
	for i := range s.groups {
		every := time.Duration(s.groups[i].every) * s.tick
		for _, d := range s.groups[i].devices {
			if out[d] == 0 || every < out[d] {
				out[d] = every
			}
		}
	}
	return out
}

// IntervalOf returns the interval at which sessions with these options read a reading.
func (o Options) IntervalOf(r field.Reading) time.Duration {
	return max(interval(r, o.withDefaults()), MinInterval)
}

// interval returns the shortest interval of the list's fields with this reading.
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
	if d.Event {
		return o.Interval
	}
	return d.Cost.Interval(o.Interval, o.SlowInterval)
}

// at returns the columns due on tick n. Ticks may be skipped but not repeated; columns due on a skipped tick are due on
// the next.
func (s *schedule) at(n uint64) []bool {
	clear(s.devices)
	for i := range s.groups {
		g := &s.groups[i]
		due := n >= g.next
		if due {
			g.next = n - n%g.every + g.every
			for _, d := range g.devices {
				s.devices[d] = true
			}
		}
		for _, c := range g.columns {
			s.due[c] = due
		}
	}
	return s.due
}

// retry makes everything due on the next tick: after a failed call the slow columns would otherwise stay without a
// value until their next turn.
func (s *schedule) retry() {
	for i := range s.groups {
		s.groups[i].next = 0
	}
}
