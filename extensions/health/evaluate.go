package health

import (
	"math"
	"slices"
	"strconv"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/rules"
	"warpgauge/pkg/verdict"
	"warpgauge/pkg/view"
)

// sourceRules leads from the cells of a source to the rules that judge them.
type sourceRules struct {
	*view.Source
	conditions []judgedCondition
	resets     []resetInput
	gpus       []gpuColumns
}

// judgedCondition is a rule of a board that cells of a source decide.
type judgedCondition struct {
	board  string // its id
	rule   *Rule
	inputs []ruleInput
}

// ruleInput is a cell that a rule judges.
type ruleInput struct {
	device, cell int
	name         string          // of the reading, with labels: for evidence
	condition    rules.Condition // the rule's, with the threshold of the column
	state        rules.State
	outcome      rules.Outcome // since the last judgement
	value        float64       // that decided it
}

// resetInput is a cell that goes back to 0 when the device is reset.
type resetInput struct {
	board        string
	device, cell int
	key          string
	value        float64 // since the last judgement; NaN: none
}

// gpuColumns are the cells of a GPU that have a value in every row while it answers.
type gpuColumns struct {
	id     string
	device int
	cells  []int
	blank  bool // none has a value
	fresh  bool // there was a row since the last judgement
}

// minCells is how many cells of a GPU there must be if all being blank is to mean something.
const minCells = 3

// bindRules connects the cells of a source with the rules that judge them.
func bindRules(s *view.Source, table Rules) *sourceRules {
	out := &sourceRules{Source: s}
	for i := range s.Columns {
		c := &s.Columns[i]
		if c.Buffer > 0 {
			continue
		}
		board := boardOf(s, c.Device)
		if slices.Contains(resetReadings, c.Field) {
			out.resets = append(out.resets, resetInput{board, c.Device, i, s.Collector + " " + strconv.Itoa(int(c.Field)), math.NaN()})
		}
		for j := range table {
			if r := &table[j]; r.judges(c) {
				in := ruleInput{device: c.Device, cell: i, name: nameOf(&s.Devices[c.Device], c), condition: r.Condition}
				in.condition.Threshold = r.threshold(c)
				out.add(board, r, in)
			}
		}
	}
	for i := range s.Devices {
		if cells := valueColumns(s, i); s.Devices[i].Level == field.GPU && len(cells) >= minCells {
			out.gpus = append(out.gpus, gpuColumns{id: s.Devices[i].ID, device: i, cells: cells})
		}
	}
	return out
}

// boardOf returns the id of the board that a device of a source is part of.
func boardOf(s *view.Source, device int) string {
	d := &s.Devices[device]
	for range 4 { // a link of a compute instance of an instance of a GPU, at most
		if d.Parent == "" {
			return d.ID
		}
		i := slices.IndexFunc(s.Devices, func(x collector.Device) bool { return x.ID == d.Parent })
		if i < 0 {
			return d.Parent
		}
		d = &s.Devices[i]
	}
	return ""
}

func (s *sourceRules) add(board string, r *Rule, in ruleInput) {
	i := slices.IndexFunc(s.conditions, func(c judgedCondition) bool { return c.board == board && c.rule == r })
	if i < 0 {
		i = len(s.conditions)
		s.conditions = append(s.conditions, judgedCondition{board: board, rule: r})
	}
	s.conditions[i].inputs = append(s.conditions[i].inputs, in)
}

// inherit continues where a former binding of the same ring was.
func (s *sourceRules) inherit(old *sourceRules) {
	for i := range s.conditions {
		c := &s.conditions[i]
		at := slices.IndexFunc(old.conditions, func(o judgedCondition) bool { return o.board == c.board && o.rule == c.rule })
		if at < 0 {
			continue
		}
		for j := range c.inputs {
			in := &c.inputs[j]
			if k := slices.IndexFunc(old.conditions[at].inputs, func(o ruleInput) bool { return o.cell == in.cell }); k >= 0 {
				in.state, in.outcome, in.value = old.conditions[at].inputs[k].state, old.conditions[at].inputs[k].outcome, old.conditions[at].inputs[k].value
			}
		}
	}
}

// valueColumns returns the indexes of a device's columns, without event fields.
func valueColumns(s *view.Source, device int) (out []int) {
	for i := range s.Columns {
		c := &s.Columns[i]
		if d, known := field.ByID(c.Field); c.Device == device && c.Buffer == 0 && known && !d.Event {
			out = append(out, i)
		}
	}
	return out
}

// judges reports whether a rule judges the readings of a column.
func (r *Rule) judges(c *collector.Column) bool {
	for _, id := range r.Readings {
		if c.Field == id && r.Test > rules.OfState {
			return (r.Label.Name == "" || slices.Contains(c.Labels, r.Label)) && !slices.ContainsFunc(c.Labels, func(l collector.Label) bool { return slices.Contains(r.Except, l.Value) })
		}
	}
	return false
}

// threshold returns the threshold of a column.
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

// unjudged lists the rules that no column of a board decides, although such boards have the
// reading. A rule about readings that only another vendor's devices have is not among them.
func unjudged(s *view.Source, device int, table Rules) (out []verdict.Unjudged) {
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
	for i := range table {
		r := &table[i]
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

// evaluate evaluates a row of the source.
func (s *sourceRules) evaluate(row *rows.Row) {
	at := time.Unix(0, row.Time)
	for i := range s.conditions {
		c := &s.conditions[i]
		for j := range c.inputs {
			if in := &c.inputs[j]; row.Devices[in.device].Sampled {
				in.evaluate(row.Cells[in.cell], at)
			}
		}
	}
	for i := range s.resets {
		if r := &s.resets[i]; row.Devices[r.device].Sampled && row.Cells[r.cell] >= 0 {
			r.value = row.Cells[r.cell]
		}
	}
	for i := range s.gpus {
		if g := &s.gpus[i]; row.Devices[g.device].Sampled {
			g.fresh, g.blank = true, !slices.ContainsFunc(g.cells, func(i int) bool { return !math.IsNaN(row.Cells[i]) })
		}
	}
}

// evaluate evaluates a value. The newest value decides; growth decides until it is judged.
func (in *ruleInput) evaluate(v float64, at time.Time) {
	o := in.condition.Evaluate(&in.state, v, at)
	if in.condition.Test == rules.Rises {
		if in.outcome == rules.Unwell {
			return
		}
		if o == rules.Unwell {
			in.state.Growth.Restart(at, v)
		}
	}
	in.outcome, in.value = o, v
}

// apply applies the outcomes since the last judgement to the boards.
func (s *sourceRules) apply(boards map[string]*tracked, now time.Time) {
	for i := range s.conditions {
		if t := boards[s.conditions[i].board]; t != nil {
			s.conditions[i].apply(t, s.Collector, now)
		}
	}
	for i := range s.resets {
		r := &s.resets[i]
		if t := boards[r.board]; t != nil && !math.IsNaN(r.value) {
			t.readReset(r.key, r.value, now)
			r.value = math.NaN()
		}
	}
	for i := range s.gpus {
		g := &s.gpus[i]
		if t := boards[g.id]; t != nil && g.fresh {
			t.blank, g.fresh = g.blank, false
		}
	}
}

// apply applies the worst outcome of a condition's inputs.
func (c *judgedCondition) apply(t *tracked, collector string, now time.Time) {
	worst := rules.Silent
	known := t.has(c.rule.Name)
	for i := range c.inputs {
		in := &c.inputs[i]
		if in.outcome == rules.Unwell {
			if known == nil {
				known = t.condition(c.rule)
			}
			if known.wants(now) {
				known.add(verdict.Evidence{Time: now, Source: collector, Text: in.name + " is " + strconv.FormatFloat(in.value, 'g', -1, 64)})
			}
		}
		worst = max(worst, in.outcome)
		in.outcome = rules.Silent
		in.state.Reached = in.state.Reached || !known.inactive()
	}
	switch {
	case worst == rules.Unwell:
		t.see(known, now, verdict.Evidence{})
	case worst == rules.Well && known != nil:
		t.unsee(known, now)
	}
}

// readReset detects a reset: the reading has fallen below half of its last value. Another
// library may read a little less.
func (t *tracked) readReset(key string, v float64, now time.Time) {
	before, known := t.resets[key]
	if t.resets == nil {
		t.resets = map[string]float64{}
	}
	if known && v < before/2 {
		t.wasReset(now, false)
	}
	t.resets[key] = v
}
