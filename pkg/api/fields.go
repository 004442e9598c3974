package api

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

// maxFields bounds the series of an answer: 16 GPUs with 36 links each and a list of 100
// fields have 10,000.
const maxFields = 50_000

// rows keeps the newest row of each source for one answer, so that all of its values are
// of one time.
type rows struct{ taken map[*view.Source]*ring.Row }

func newRows() *rows { return &rows{map[*view.Source]*ring.Row{}} }

// of returns the newest row of a source; nil if there is none, or none of the shape that
// the source promises.
func (r *rows) of(s *view.Source) *ring.Row {
	row, read := r.taken[s]
	if !read {
		row = &ring.Row{}
		if s.Ring == nil || !s.Ring.Latest(row) || len(row.Cells) != len(s.Columns) || len(row.Stamps) != len(s.Devices) {
			row = nil
		}
		r.taken[s] = row
	}
	return row
}

// chosen are the devices and fields that a query names.
type chosen struct {
	devices  map[string]bool // nil: all
	patterns []pattern       // none: all
}

// choose reads device=ID and field=PATTERN, both any number of times.
func (n *node) choose(q *query) (*chosen, error) {
	c := &chosen{}
	if ids := q.Values["device"]; len(ids) > 0 {
		c.devices = map[string]bool{}
		for _, id := range ids {
			if _, known := n.byID[id]; !known {
				return nil, &Problem{Status: http.StatusNotFound, Detail: fmt.Sprintf("no device has the id %q: %sdevices has those there are", id, Prefix)}
			}
			c.devices[id] = true
		}
	}
	for _, text := range q.Values["field"] {
		c.patterns = append(c.patterns, newPattern(text))
	}
	return c, nil
}

func (c *chosen) device(id string) bool { return c.devices == nil || c.devices[id] }

func (c *chosen) field(name string) bool {
	return len(c.patterns) == 0 || slices.ContainsFunc(c.patterns, func(p pattern) bool { return p.matches(name) })
}

// pattern is a text with * for any text, cut at them.
type pattern []string

func newPattern(text string) pattern { return strings.Split(text, "*") }

// matches takes the first place where each part fits: no later one would leave more for
// the parts behind it. It takes time in proportion to the text and the pattern.
func (p pattern) matches(text string) bool {
	first, last := p[0], p[len(p)-1]
	if len(p) == 1 {
		return text == first
	}
	if len(text) < len(first)+len(last) || !strings.HasPrefix(text, first) || !strings.HasSuffix(text, last) {
		return false
	}
	text = text[len(first) : len(text)-len(last)]
	for _, part := range p[1 : len(p)-1] {
		at := strings.Index(text, part)
		if at < 0 {
			return false
		}
		text = text[at+len(part):]
	}
	return true
}

// fields makes the answer of /api/v1/fields.
func (a *API) fields(q *query) (*Fields, error) {
	n := a.node()
	c, err := n.choose(q)
	if err != nil {
		return nil, err
	}
	out := &Fields{Time: timeOf(n.now), Devices: []DeviceFields{}}
	sheets, rows, total := map[*view.Source]*sheet{}, newRows(), 0
	for i := range n.devices {
		d := &n.devices[i]
		if !c.device(d.Device.ID) {
			continue
		}
		of := DeviceFields{ID: d.Device.ID, Fields: []Field{}}
		if d.source != nil {
			s := sheets[d.source]
			if s == nil {
				s = a.newSheet(d.source, c)
				sheets[d.source] = s
			}
			of.Fields = a.fieldsOf(d, s, rows.of(d.source), n.now)
		}
		if total += len(of.Fields); total > maxFields {
			return nil, badQuery("more than %d fields of devices: ask for some with device= and field=", maxFields)
		}
		out.Devices = append(out.Devices, of)
	}
	return out, nil
}

// sheet is what the columns of a source are for a query.
type sheet struct {
	fields   []sheetField
	byDevice []map[field.ID][]int // columns of each device by their reading
	absent   map[absentKey]collector.Explanation
}

type absentKey struct {
	device int
	field  field.ID
}

// sheetField is a field of the source's list that is asked for.
type sheetField struct {
	*field.Field
	form     Field // what all its series have
	interval time.Duration
	scale    field.Scale
}

func (a *API) newSheet(s *view.Source, c *chosen) *sheet {
	out := &sheet{byDevice: make([]map[field.ID][]int, len(s.Devices))}
	intervals := a.intervals(s.Fields)
	wanted := map[field.ID]bool{}
	for i := range s.Fields.Fields {
		f := &s.Fields.Fields[i]
		if _, computed := field.Input(f.Desc); computed || f.Type == field.Label || !c.field(f.Name) {
			continue
		}
		wanted[f.Desc.ID] = true
		interval := intervals[f.Desc.ID]
		out.fields = append(out.fields, sheetField{f, Field{
			Name: f.Name, Metric: f.Name, Help: f.Help, Type: f.Type.String(), Unit: unitOf(f),
			Window: windowOf(f, s.Collector, interval).Seconds(), Interval: interval.Seconds(), Collector: s.Collector,
		}, interval, field.NewScale(f.Scale)})
	}
	out.absent = make(map[absentKey]collector.Explanation, len(s.Absent))
	for _, x := range s.Absent {
		if wanted[x.Field] && int(x.Explanation) < len(s.Explanations) {
			out.absent[absentKey{x.Device, x.Field}] = s.Explanations[x.Explanation]
		}
	}
	for i := range out.byDevice {
		out.byDevice[i] = map[field.ID][]int{}
	}
	for i := range s.Columns {
		if col := &s.Columns[i]; wanted[col.Field] && col.Buffer == 0 && col.Device >= 0 && col.Device < len(s.Devices) {
			out.byDevice[col.Device][col.Field] = append(out.byDevice[col.Device][col.Field], i)
		}
	}
	return out
}

// fieldsOf returns the fields of one device.
func (a *API) fieldsOf(d *device, s *sheet, row *ring.Row, now time.Time) []Field {
	out := make([]Field, 0, len(s.fields))
	for i := range s.fields {
		f := &s.fields[i]
		columns := s.byDevice[d.index][f.Desc.ID]
		if len(columns) == 0 && f.Desc.AskedOf(d.Device.Level) {
			e, known := s.absent[absentKey{d.index, f.Desc.ID}]
			if !known {
				e.Reason = collector.ReasonUnknown
			}
			one := f.form
			one.Absent = &Absence{string(e.Reason), e.Detail}
			out = append(out, one)
		}
		for _, at := range columns {
			one := f.form
			one.Labels = pairs(d.source.Columns[at].Labels)
			a.value(&one, d, f, row, at, now)
			out = append(out, one)
		}
	}
	return out
}

// value sets the value of a field and its age, or why there is none.
func (a *API) value(to *Field, d *device, f *sheetField, row *ring.Row, at int, now time.Time) {
	if row == nil {
		to.Absent = absence(d, collector.Explanation{Reason: collector.ReasonNotDue, Detail: "not read yet"})
		return
	}
	stamp, every := row.Stamps[d.index], d.source.IntervalOf(d.index)
	age := now.Sub(time.Unix(0, stamp))
	fresh := stamp != 0 && age < max(a.o.StaleAfter, 3*every)
	to.Value = number(f.scale.Of(row.Cells[at]))
	if to.Value == nil || !fresh && !field.IsXID(f.Desc.ID) {
		to.Value, to.Absent = nil, absence(d, d.source.Why(at, row.Cells[at]))
		return
	}
	// The stamp is of the last reading of the device. Of a field that is read less often it
	// is not known when that was.
	if f.interval > 0 && f.interval <= every && age >= 0 {
		seconds := age.Truncate(time.Millisecond).Seconds()
		to.Age = &seconds
	}
}

// absence says why a device has no value: because of its state, or else for what is known
// of the field.
func absence(d *device, e collector.Explanation) *Absence {
	switch d.State {
	case session.Up:
		return &Absence{string(e.Reason), e.Detail}
	case session.Stalled:
		e.Reason = collector.ReasonDeviceStalled
	case session.Lost:
		e.Reason = collector.ReasonDeviceLost
	case session.Absent:
		e.Reason = collector.ReasonDeviceAbsent
	case session.Released:
		e.Reason = collector.ReasonReleased
	}
	return &Absence{string(e.Reason), d.Reason}
}

// number is a value of an answer; nil if it is none that JSON has.
func number(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// intervals is how often each reading of a list is taken.
func (a *API) intervals(list field.List) map[field.ID]time.Duration {
	out := map[field.ID]time.Duration{}
	for _, r := range list.Readings() {
		out[r.Desc.ID] = a.o.Interval(r)
	}
	return out
}

// readingOf is the reading that a field shows or is computed from.
func readingOf(f *field.Field) field.ID {
	if in, computed := field.Input(f.Desc); computed {
		return in.ID
	}
	return f.Desc.ID
}

// unitOf is the unit of a field's values: that of its reading, or of the multiple of it that
// has the field's name.
func unitOf(f *field.Field) string {
	if f.Scale == 1 {
		return f.Desc.Unit
	}
	for _, id := range f.Desc.Scaled {
		if d, ok := field.ByID(id); ok && (d.Name == f.Name || slices.Contains(d.Aliases, f.Name)) {
			return d.Unit
		}
	}
	return ""
}

// windowOf is the time over which the driver averages a field, 0 if it is not known or no
// single number.
func windowOf(f *field.Field, of string, interval time.Duration) time.Duration {
	for _, w := range field.Windows(f.Desc) {
		if !strings.EqualFold(w.Library, of) {
			continue
		}
		if d, err := time.ParseDuration(strings.ReplaceAll(w.Mean, " ", "")); err == nil {
			return d
		}
		if strings.HasPrefix(w.Mean, "the time between two readings") || strings.HasPrefix(w.Mean, "the watch's interval") {
			return interval
		}
	}
	return 0
}
