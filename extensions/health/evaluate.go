package health

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/events"
	"warpgauge/pkg/field"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/view"
)

// Derived computes readings that no library provides.
type Derived interface {
	// Update computes the current values. The Watch calls it before it judges them.
	Update(now time.Time)
	// Value returns a derived reading of a device, or NaN if it is unknown.
	Value(device string, of field.Derived) float64
	// Evidence explains how the value was computed.
	Evidence(device string, of field.Derived) string
}

// sourceRules maps the cells of a source to the rules that judge them.
type sourceRules struct {
	*view.Source
	conditions []judgedCondition
	resets     []resetInput
	gpus       []gpuColumns
}

// judgedCondition is a rule on a board, with the readings that decide it.
type judgedCondition struct {
	board  string // device id
	rule   *Rule
	inputs []ruleInput
}

// ruleInput is a reading that a rule judges.
type ruleInput struct {
	*evaluation
	device    int
	cell      int             // -1 for a derived reading
	limit     int             // the cell with the threshold; -1: it is fixed
	name      string          // reading and labels, for evidence
	condition field.Condition // the rule's condition with the column's threshold
}

// evaluation holds the state of a rule on one reading across Views.
type evaluation struct {
	state   field.ConditionState
	outcome field.Outcome // since the last judgement
	value   float64       // that decided the outcome
}

// evaluations holds the evaluations of all devices that the reader remembers.
type evaluations map[evaluationKey]*evaluation

type evaluationKey struct {
	rule, collector, device, labels string // collector is "" for derived readings
	field                           field.ID
}

// bind returns an evaluation for the current View and creates it if necessary.
func (all evaluations) bind(k evaluationKey) *evaluation {
	e := all[k]
	if e == nil {
		e = &evaluation{}
		all[k] = e
	}
	return e
}

// resetInput is the cell of a device's energy. A reset or driver load sets it to 0, and nothing else does.
type resetInput struct {
	board        string
	device, cell int
	value        float64 // since the last judgement, or NaN
}

// gpuColumns lists the cells of a GPU that have a value in every row while the GPU answers.
type gpuColumns struct {
	id     string
	device int
	cells  []int
	blank  bool // all of them are blank
	fresh  bool // a row came since the last judgement
}

// bindRules connects the readings of a source with the rules that judge them. derived reports whether
// there are derived readings.
func bindRules(s *rows.Source, table Rules, derived bool, all evaluations) *sourceRules {
	out := &sourceRules{Source: s.Source}
	for i := range s.Columns {
		c := &s.Columns[i]
		if c.Buffer > 0 || !s.Supplies[c.Device] {
			continue
		}
		board := boardOf(s.Source, c.Device)
		if c.Field == field.TotalEnergy {
			out.resets = append(out.resets, resetInput{board, c.Device, i, math.NaN()})
		}
		for j := range table {
			if r := &table[j]; r.judges(c) && (r.NotOf == nil || r.NotOf != vendorOf(s.Source, c.Device)) {
				key := evaluationKey{r.Name, s.Collector, s.Devices[c.Device].ID, fmt.Sprint(c.Labels), c.Field}
				limit := -1
				if r.Limit != 0 {
					limit = slices.IndexFunc(s.Columns, func(x collector.Column) bool { return x.Device == c.Device && x.Field == r.Limit })
				}
				in := ruleInput{all.bind(key), c.Device, i, limit, nameOf(&s.Devices[c.Device], c), r.Condition}
				in.condition.Threshold = r.threshold(c)
				out.add(board, r, in)
			}
		}
	}
	for i := range s.Devices {
		d := &s.Devices[i]
		if !s.Supplies[i] || d.Level == field.Link {
			continue
		}
		for j := range table {
			if r := &table[j]; derived && r.Derived != field.NotDerived {
				out.add(boardOf(s.Source, i), r, ruleInput{all.bind(evaluationKey{rule: r.Name, device: d.ID}), i, -1, -1, "", r.Condition})
			}
		}
		if cells := valueColumns(s.Source, i); d.Level == field.GPU && len(cells) >= 3 { // fewer blank cells are no fault
			out.gpus = append(out.gpus, gpuColumns{id: d.ID, device: i, cells: cells})
		}
	}
	return out
}

// boardOf returns the id of the board that contains a device.
func boardOf(s *view.Source, device int) string {
	d := &s.Devices[device]
	for range 4 { // at most: a link of a compute instance of a GPU instance of a GPU
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

// valueColumns returns the indexes of a device's columns, without event fields and health watches.
func valueColumns(s *view.Source, device int) (out []int) {
	for i := range s.Columns {
		c := &s.Columns[i]
		if d, known := field.ByID(c.Field); c.Device == device && c.Buffer == 0 && known && !d.Event && c.Field != field.GPUHealth {
			out = append(out, i)
		}
	}
	return out
}

// judges reports whether a rule judges the readings of a column.
func (r *Rule) judges(c *collector.Column) bool {
	for _, id := range r.Readings {
		if c.Field == id && r.Derived == field.NotDerived {
			return (r.Label.Name == "" || slices.Contains(c.Labels, r.Label)) && !slices.ContainsFunc(c.Labels, func(l collector.Label) bool { return slices.Contains(r.Except, l.Value) })
		}
	}
	return false
}

// vendorOf returns the vendor of a device; nil: it has only readings common to all vendors.
func vendorOf(s *view.Source, device int) *field.Vendor {
	for i := range s.Columns {
		if d, known := field.ByID(s.Columns[i].Field); known && s.Columns[i].Device == device && d.Vendor != nil {
			return d.Vendor
		}
	}
	return nil
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

// nameOf returns the name of a reading for evidence.
func nameOf(d *collector.Device, c *collector.Column) string {
	name := strconv.Itoa(int(c.Field))
	if desc, known := field.ByID(c.Field); known {
		name = desc.Name
	}
	labels := c.Labels
	if d.Level == field.Link {
		labels = slices.Concat(d.Labels, labels)
	}
	for _, l := range labels {
		name += " " + l.Name + "=" + l.Value
	}
	return name
}

// unjudged lists the rules that no column of a board decides, although such boards have the
// reading. It skips rules about readings of other vendors.
func unjudged(s *view.Source, device int, table Rules) (out []events.Unjudged) {
	if s.Devices[device].Parent != "" {
		return nil
	}
	columns, vendor := map[field.ID]bool{}, vendorOf(s, device)
	for i := range s.Columns {
		if s.Columns[i].Device == device {
			columns[s.Columns[i].Field] = true
		}
	}
	for i := range table {
		r := &table[i]
		why, asked, found := collector.ReasonNotListed, false, false
		for _, id := range r.Readings {
			d, known := field.ByID(id)
			if !known || !d.AskedOf(s.Devices[device].Level) || d.Vendor != nil && d.Vendor != vendor || r.NotOf != nil && r.NotOf == vendor {
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
			out = append(out, events.Unjudged{Rule: r.Name, Why: why})
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
			if in := &c.inputs[j]; in.cell >= 0 && row.Devices[in.device].Sampled {
				if in.limit >= 0 && row.Cells[in.limit] > 0 { // false for NaN
					in.condition.Threshold = row.Cells[in.limit]
				}
				in.evaluate(row.Cells[in.cell], at)
			}
		}
	}
	for i := range s.resets {
		r := &s.resets[i] // no energy at all is an odd reading, not a reset
		if v := row.Cells[r.cell]; row.Devices[r.device].Sampled && v > 0 {
			r.value = v
		}
	}
	for i := range s.gpus {
		if g := &s.gpus[i]; row.Devices[g.device].Sampled {
			g.fresh, g.blank = true, !slices.ContainsFunc(g.cells, func(i int) bool { return !math.IsNaN(row.Cells[i]) })
		}
	}
}

// evaluate evaluates a value. The newest value decides, but growth remains decisive until it is judged.
func (in *ruleInput) evaluate(v float64, at time.Time) {
	o := in.condition.Evaluate(&in.state, v, at)
	if in.condition.Test == field.Rises {
		if in.outcome == field.Unwell {
			return
		}
		if o == field.Unwell {
			in.state.Growth.Restart(at, v)
		}
	}
	in.outcome, in.value = o, v
}

// apply applies the outcomes since the last judgement to the boards.
func (s *sourceRules) apply(boards map[string]*tracked, derived Derived, now time.Time) {
	for i := range s.conditions {
		if t := boards[s.conditions[i].board]; t != nil {
			s.applyCondition(&s.conditions[i], t, derived, now)
		}
	}
	for i := range s.resets {
		r := &s.resets[i]
		if t := boards[r.board]; t != nil && !math.IsNaN(r.value) {
			t.readReset(s.Collector, r.value, now)
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

// applyCondition applies the worst outcome of a condition's inputs.
func (s *sourceRules) applyCondition(c *judgedCondition, t *tracked, derived Derived, now time.Time) {
	worst := field.Silent
	known := t.find(c.rule.Name)
	for i := range c.inputs {
		in := &c.inputs[i]
		if in.cell < 0 {
			in.evaluate(derived.Value(s.Devices[in.device].ID, c.rule.Derived), now)
		}
		if in.outcome == field.Unwell {
			if known == nil {
				known = t.condition(c.rule)
			}
			if known.needsEvidence(now) {
				e := events.Evidence{Time: now, Source: s.Collector, Text: in.name + " is " + strconv.FormatFloat(in.value, 'g', -1, 64)}
				if in.cell < 0 {
					e.Source, e.Text = "early signs", derived.Evidence(s.Devices[in.device].ID, c.rule.Derived)
				}
				known.addEvidence(e)
			}
		}
		worst = max(worst, in.outcome)
		in.outcome = field.Silent
		in.state.Reached = in.state.Reached || !known.inactive()
	}
	switch {
	case worst == field.Unwell, worst == field.Between && !known.inactive():
		t.dirty, known.logOnly = t.dirty || known.logOnly, false
		t.raise(known, now, events.Evidence{})
	case worst != field.Silent && known != nil:
		t.clear(known, now)
	}
}

// readReset detects a reset: the energy has fallen below half of its last value. A smaller drop
// can come from another library. The reset came after the last value, and after the GPU last failed to answer.
func (t *tracked) readReset(collector string, v float64, now time.Time) {
	if t.resets == nil {
		t.resets = map[string]resetReading{}
	}
	if before, known := t.resets[collector]; known && v < before.value/2 {
		t.recordReset(slices.MaxFunc([]time.Time{before.at, t.silent}, time.Time.Compare))
	}
	t.resets[collector] = resetReading{v, now}
}
