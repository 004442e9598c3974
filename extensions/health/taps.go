package health

import (
	"math"
	"slices"
	"strconv"
	"time"

	"warpgauge/pkg/verdict"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/view"
)

// outcome is what a reading says of a rule. The higher wins: of several links one is enough.
type outcome uint8

const (
	silent outcome = iota // no value, or nothing to compare it with
	well
	unwell
)

// tapped is a source of the View with the cells that rules judge.
type tapped struct {
	source *view.Source
	head   uint64  // of the ring, when it was read last
	stamps []int64 // of the devices, then
	taps   []tap
	resets []resetTap
	judged []judged
	gpus   []cells
}

// cells are those of a GPU that have a value in every row while it answers.
type cells struct {
	device *tracked
	stamp  int
	at     []int
}

// fewCells is of how many it is no wonder if all are blank.
const fewCells = 3

// judged is a condition that cells of a source decide.
type judged struct {
	device *tracked
	*condition
}

// tap is a cell that a rule judges.
type tap struct {
	*condition
	device *tracked
	stamp  int // index of the device's stamp
	cell   int
	name   string  // of the reading, with labels: for evidence
	least  float64 // the rule's threshold for the column

	base  float64   // of a counter, from which growth counts; of what Falls, whether it was up
	begun time.Time // when the counter was that; zero: not yet
}

// resetTap is a cell that goes back to 0 when the device is reset.
type resetTap struct {
	device      *tracked
	stamp, cell int
	key         string
}

// bind connects the cells of a source with what they say something of. board returns the
// device that a device is part of.
func bind(s *view.Source, rules Rules, board func(*collector.Device) *tracked) *tapped {
	out := &tapped{source: s, stamps: make([]int64, len(s.Devices)), head: math.MaxUint64}
	boards := make([]*tracked, len(s.Devices))
	for i := range s.Devices {
		boards[i] = board(&s.Devices[i])
	}
	for i := range s.Columns {
		c := &s.Columns[i]
		t := boards[c.Device]
		if t == nil || c.Buffer > 0 {
			continue
		}
		for _, id := range resetReadings {
			if c.Field == id {
				out.resets = append(out.resets, resetTap{t, c.Device, i, s.Collector + " " + strconv.Itoa(int(id))})
			}
		}
		for j := range rules {
			if r := &rules[j]; r.judges(c) {
				out.taps = append(out.taps, tap{condition: t.condition(r), device: t, stamp: c.Device, cell: i, name: nameOf(&s.Devices[c.Device], c), least: r.threshold(c)})
				out.judge(t, t.condition(r))
			}
		}
	}
	for i, t := range boards {
		if t != nil && t.device.ID == s.Devices[i].ID {
			t.unjudged = unjudged(s, i, rules)
			t.dirty = true
			if at := valuesOf(s, i); t.device.Level == field.GPU && len(at) >= fewCells {
				out.gpus = append(out.gpus, cells{t, i, at})
			}
		}
	}
	return out
}

// valuesOf are the cells of a device that are not for events.
func valuesOf(s *view.Source, device int) (at []int) {
	for i := range s.Columns {
		c := &s.Columns[i]
		if d, known := field.ByID(c.Field); c.Device == device && c.Buffer == 0 && known && !d.Event {
			at = append(at, i)
		}
	}
	return at
}

func (s *tapped) judge(t *tracked, c *condition) {
	for _, j := range s.judged {
		if j.condition == c {
			return
		}
	}
	s.judged = append(s.judged, judged{t, c})
}

// judges reports whether a rule judges the readings of a column.
func (r *Rule) judges(c *collector.Column) bool {
	for _, id := range r.Readings {
		if c.Field == id && r.Test > OfState {
			return (r.Label.Name == "" || slices.Contains(c.Labels, r.Label)) && !slices.ContainsFunc(c.Labels, func(l collector.Label) bool { return slices.Contains(r.Except, l.Value) })
		}
	}
	return false
}

// threshold is that of a column.
func (r *Rule) threshold(c *collector.Column) float64 {
	for _, l := range c.Labels {
		if n, own := r.Blocks[l.Value]; own && l.Name == "block" {
			return n
		}
	}
	return r.Threshold
}

// nameOf is a reading as evidence names it.
func nameOf(d *collector.Device, c *collector.Column) string {
	name := strconv.Itoa(int(c.Field))
	if desc, known := field.ByID(c.Field); known {
		name = desc.Name
	}
	if d.Level == field.Link {
		for _, l := range d.Labels {
			name += " " + l.Name + "=" + l.Value
		}
	}
	for _, l := range c.Labels {
		name += " " + l.Name + "=" + l.Value
	}
	return name
}

// unjudged lists the rules for which a board has no column although such boards are asked
// for one. A rule about readings that only another vendor's devices have is not among them.
func unjudged(s *view.Source, device int, rules Rules) (out []verdict.Unjudged) {
	if s.Devices[device].Parent != "" {
		return nil
	}
	columns := map[field.ID]bool{}
	var vendor *field.Vendor // whose readings the device has; nil: only such as any vendor's may have
	for i := range s.Columns {
		if s.Columns[i].Device == device {
			columns[s.Columns[i].Field] = true
			if d, known := field.ByID(s.Columns[i].Field); known && d.Vendor != nil {
				vendor = d.Vendor
			}
		}
	}
	for i := range rules {
		r := &rules[i]
		why, asked, found := collector.ReasonNotListed, false, false
		for _, id := range r.Readings {
			d, known := field.ByID(id)
			if !known || !d.AskedOf(s.Devices[device].Level) || d.Vendor != nil && d.Vendor != vendor {
				continue
			}
			asked, found = true, found || columns[id]
			for _, a := range s.Absent {
				if a.Device == device && a.Field == id && int(a.Explanation) < len(s.Explanations) {
					why = s.Explanations[a.Explanation].Reason
				}
			}
		}
		if asked && !found && len(out) < maxUnjudged {
			out = append(out, verdict.Unjudged{Rule: r.Name, Why: why})
		}
	}
	return out
}

// read takes the newest row, if there is one that was not read.
func (s *tapped) read(row *ring.Row, now time.Time) {
	head := s.source.Ring.Head()
	if head == s.head || head == 0 || !s.source.Ring.Latest(row) || len(row.Cells) != len(s.source.Columns) || len(row.Stamps) != len(s.stamps) {
		return
	}
	s.head = head
	for i := range s.resets {
		if r := &s.resets[i]; s.sampled(row, r.stamp) {
			r.take(row.Cells[r.cell], now)
		}
	}
	for i := range s.taps {
		t := &s.taps[i]
		if !s.sampled(row, t.stamp) {
			continue
		}
		v := row.Cells[t.cell]
		o := t.judge(v, now)
		if o == unwell && t.wants(now) {
			t.add(verdict.Evidence{Time: now, Source: s.source.Collector, Text: t.name + " is " + strconv.FormatFloat(v, 'g', -1, 64)})
		}
		t.outcome = max(t.outcome, o)
	}
	for _, g := range s.gpus {
		if s.sampled(row, g.stamp) {
			g.device.blank = !slices.ContainsFunc(g.at, func(i int) bool { return !math.IsNaN(row.Cells[i]) })
		}
	}
	for _, j := range s.judged {
		switch j.outcome {
		case unwell:
			j.device.see(j.condition, now, verdict.Evidence{})
		case well:
			j.device.unsee(j.condition, now)
		}
		j.outcome = silent
	}
	copy(s.stamps, row.Stamps)
}

// sampled reports whether a device was sampled since the last row that was read.
func (s *tapped) sampled(row *ring.Row, device int) bool {
	return row.Stamps[device] != 0 && row.Stamps[device] != s.stamps[device]
}

// judge says what a value says of the tap's rule.
func (t *tap) judge(v float64, now time.Time) outcome {
	if math.IsNaN(v) {
		return silent
	}
	bad := false
	switch r := t.rule; r.Test {
	case AtLeast:
		bad = v >= t.least
	case AtMost:
		bad = v <= r.Threshold
	case Equal:
		bad = v == r.Threshold
	case Falls:
		if v >= r.Threshold {
			t.base = 1
			return well
		}
		if t.base == 0 && !t.active {
			return silent // it was never up, as far as is known
		}
		bad = true
	case Rises:
		switch grown := v - t.base; {
		case t.begun.IsZero() || grown < 0 || now.Before(t.begun):
			t.base, t.begun = v, now
			return silent
		case grown >= r.Threshold:
			t.base, t.begun = v, now
			bad = true
		case now.Sub(t.begun) >= r.Within:
			t.base, t.begun = v, now
		}
	default:
		return silent
	}
	if bad {
		return unwell
	}
	return well
}

// take notices a reset: the reading is less than half of what it was. What is a little less
// is another library's reading of the same.
func (r *resetTap) take(v float64, now time.Time) {
	if math.IsNaN(v) || v < 0 {
		return
	}
	t := r.device
	before, known := t.resets[r.key]
	if t.resets == nil {
		t.resets = map[string]float64{}
	}
	if known && v < before/2 {
		t.wasReset(now, false)
	}
	if v != before || !known {
		t.resets[r.key] = v
	}
}
