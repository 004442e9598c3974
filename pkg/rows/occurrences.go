package rows

import (
	"fmt"
	"strconv"
	"time"

	"warpgauge/pkg/events"
	"warpgauge/pkg/field"
	"warpgauge/pkg/view"
)

// occurrences lists the conditions that cause an event each time they begin to hold.
var occurrences = []struct {
	kind events.Kind
	field.Condition
}{
	{events.UncorrectedError, field.NewUncorrectedErrors},
	{events.LinkErrors, field.LinkBurst},
}

// Occurrences is a Follower that turns readings into events that no library reports: new uncorrected memory
// errors and bursts of link errors.
type Occurrences struct {
	sources []watchedSource
	states  map[watchedReading]*field.ConditionState // of the View
}

type watchedSource struct {
	*view.Source
	cells []watchedCell
}

type watchedCell struct {
	*field.ConditionState
	kind         events.Kind
	condition    *field.Condition
	device, cell int
	name         string
}

type watchedReading struct {
	kind           events.Kind
	device, labels string
	field          field.ID
}

// Bind connects the conditions with the cells of another View. It keeps the states of devices that stay.
func (o *Occurrences) Bind(_ *view.View, sources []Source, _ time.Time) {
	before := o.states
	o.sources, o.states = make([]watchedSource, len(sources)), map[watchedReading]*field.ConditionState{}
	for i := range sources {
		s := &sources[i]
		o.sources[i].Source = s.Source
		for at := range s.Columns {
			if c := &s.Columns[at]; s.Supplies[c.Device] && c.Buffer == 0 {
				o.bindColumn(&o.sources[i], at, before)
			}
		}
	}
}

func (o *Occurrences) bindColumn(s *watchedSource, at int, before map[watchedReading]*field.ConditionState) {
	c := &s.Columns[at]
	for i := range occurrences {
		x := &occurrences[i]
		for _, id := range x.Readings {
			d, known := field.ByID(id)
			if id != c.Field || !known {
				continue
			}
			key := watchedReading{x.kind, s.Devices[c.Device].ID, fmt.Sprint(c.Labels), id}
			state := before[key]
			if state == nil {
				state = &field.ConditionState{}
			}
			o.states[key] = state
			s.cells = append(s.cells, watchedCell{state, x.kind, &x.Condition, c.Device, at, d.Name})
		}
	}
}

// Row evaluates a row.
func (o *Occurrences) Row(row *Row) {
	s, at := &o.sources[row.Source], time.Unix(0, row.Time)
	for i := range s.cells {
		c := &s.cells[i]
		v := row.Cells[c.cell]
		if !row.Devices[c.device].Sampled || v < 0 || c.condition.Evaluate(c.ConditionState, v, at) != field.Unwell {
			continue
		}
		grown := c.Growth.Since(v)
		c.Growth.Restart(at, v)
		row.Report(events.Event{
			Kind: c.kind, Time: at, Source: s.Collector, Device: &s.Devices[c.device], Bad: true,
			Text: c.name + " grew by " + strconv.FormatFloat(grown, 'g', -1, 64) + " to " + strconv.FormatFloat(v, 'g', -1, 64),
		})
	}
}
