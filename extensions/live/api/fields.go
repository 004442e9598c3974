package api

import (
	"fmt"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/field"
	"warpgauge/pkg/session"
)

// maxFields bounds the series of an answer. 16 GPUs with 36 links each and 100 fields have 10,000.
const maxFields = 50_000

// chosen holds the devices and fields of a query.
type chosen struct {
	devices  map[string]bool  // nil: all
	patterns []*regexp.Regexp // empty: all
}

// choose parses device=ID and field=PATTERN; both can be repeated.
func (n *node) choose(q *query) (*chosen, error) {
	c := &chosen{}
	if ids := q.Values["device"]; len(ids) > 0 {
		c.devices = map[string]bool{}
		for _, id := range ids {
			if _, known := n.byID[id]; !known {
				return nil, &apiv1.Problem{Status: http.StatusNotFound, Detail: fmt.Sprintf("no device has the id %q: %sdevices lists all", id, Prefix)}
			}
			c.devices[id] = true
		}
	}
	names := q.Values["field"]
	for _, text := range names {
		c.patterns = append(c.patterns, pattern(text))
	}
	if len(names) > 0 && !slices.ContainsFunc(names, n.knows) { // clients of other versions may know further names
		return nil, unknownField(names[0])
	}
	return c, nil
}

// knows reports whether text is a pattern, or the name of a field in service.
func (n *node) knows(text string) bool {
	return strings.Contains(text, "*") || slices.ContainsFunc(n.list().Fields, func(f field.Field) bool { return f.Name == text })
}

func unknownField(name string) *apiv1.Problem {
	return &apiv1.Problem{Status: http.StatusNotFound, Detail: fmt.Sprintf("there is no field %q: %slist has the fields in service", name, Prefix)}
}

func (c *chosen) device(id string) bool { return c.devices == nil || c.devices[id] }

func (c *chosen) field(name string) bool {
	return len(c.patterns) == 0 || slices.ContainsFunc(c.patterns, func(p *regexp.Regexp) bool { return p.MatchString(name) })
}

// pattern compiles a text in which * matches any text. Matching takes linear time in text and pattern.
func pattern(text string) *regexp.Regexp {
	return regexp.MustCompile("^(?s:" + strings.ReplaceAll(regexp.QuoteMeta(strings.ToValidUTF8(text, "?")), `\*`, ".*") + ")$")
}

// fields returns the answer of /api/v1/fields.
func (n *node) fields(q *query) (*apiv1.Fields, error) {
	c, err := n.choose(q)
	if err != nil {
		return nil, err
	}
	asked := n.list()
	if len(c.patterns) > 0 {
		asked = field.List{Fields: slices.DeleteFunc(slices.Clone(asked.Fields), func(f field.Field) bool { return !c.field(f.Name) })}
	}
	forms := newForms(n.o, asked)
	report := session.NewReport(n.view, n.collectors, asked, session.ReportOptions{
		StaleAfter: n.o.StaleAfter, Now: n.now, Want: func(d *collector.Device) bool { return c.device(d.ID) },
	})
	out, total := &apiv1.Fields{Time: timeOf(n.now), Devices: []apiv1.DeviceFields{}}, 0
	for i := range report.Devices {
		d := &report.Devices[i]
		of := apiv1.DeviceFields{ID: d.Device.ID, Fields: make([]apiv1.Field, 0, len(d.Fields))}
		for j := range d.Fields {
			of.Fields = forms.append(of.Fields, n, d, &d.Fields[j])
		}
		if total += len(of.Fields); total > maxFields {
			return nil, badQuery("more than %d fields of devices: ask for some with device= and field=", maxFields)
		}
		out.Devices = append(out.Devices, of)
	}
	return out, nil
}

// list returns the list in service; if that is unknown, the sources' list.
func (n *node) list() field.List {
	switch {
	case n.o.Lists != nil:
		return n.o.Lists.Status().InService.Fields
	case len(n.view.Sources) > 0:
		return n.view.Sources[0].Fields
	}
	return field.List{}
}

// forms holds properties of fields that do not change with values.
type forms struct {
	intervals map[field.ID]time.Duration
	counts    map[countKey][]exposition.Count
}

type countKey struct{ device, field string }

func newForms(o *Options, list field.List) *forms {
	out := &forms{o.intervals(list), map[countKey][]exposition.Count{}}
	if o.Page != nil && slices.ContainsFunc(list.Fields, func(f field.Field) bool { _, counted := field.Input(f.Desc); return counted }) {
		for _, c := range o.Page.Counts() {
			k := countKey{c.Device, c.Field}
			out.counts[k] = append(out.counts[k], c)
		}
	}
	return out
}

// roleOf returns the role of a series and its rank.
func roleOf(f *field.Field, labels []collector.Label) (string, int) {
	values := make([]string, 0, 4)
	for _, l := range labels {
		values = append(values, l.Value)
	}
	m, _ := f.Desc.RoleOf(values...)
	return string(m.Role), m.Rank
}

func (x *forms) formOf(f *field.Field, collector string) apiv1.Field {
	interval := x.intervals[readingOf(f)]
	out := apiv1.Field{
		Name: f.Name, Metric: f.Name, Help: f.Help, Type: f.Type.String(), Unit: unitOf(f),
		Window: windowOf(f, collector, interval).Seconds(), Interval: interval.Seconds(), Collector: collector,
	}
	if f.Type == field.Label {
		out.Metric = ""
	}
	return out
}

// append appends the series of a field, or one entry with the reason why it has no value.
func (x *forms) append(to []apiv1.Field, n *node, d *session.ReportDevice, f *session.ReportField) []apiv1.Field {
	form := x.formOf(f.Field, d.Collector)
	form.Text = f.Text
	var every time.Duration
	if at, known := n.byID[d.Device.ID]; known && n.devices[at].Source != nil {
		s, i := n.devices[at].Source, n.devices[at].Index
		every = s.IntervalOf(i)
		if exposition.InPlace(&s.Fields, &s.Devices[i]) {
			form.Metric = "" // the page has another exporter's names
		}
	}
	for _, v := range f.Values {
		one := form
		one.Labels, one.Value = pairs(v.Labels), Number(v.Value)
		one.Role, one.Rank = roleOf(f.Field, v.Labels)
		// Time is the device's last sample. The read time of a slower field is unknown.
		if age := n.now.Sub(v.Time); age >= 0 && one.Interval > 0 && one.Interval <= every.Seconds() {
			seconds := age.Truncate(time.Millisecond).Seconds()
			one.Age = &seconds
		}
		to = append(to, one)
	}
	switch {
	case f.Counted:
		for _, c := range x.counts[countKey{d.Device.ID, f.Name}] {
			one := form
			one.Labels, one.Value = pairs(c.Labels), Number(c.Value)
			to = append(to, one)
		}
	case f.Absent != collector.Explanation{}:
		form.Role, form.Rank = roleOf(f.Field, nil)
		form.Absent = &apiv1.Absence{Reason: string(f.Absent.Reason), Detail: f.Absent.Detail}
		to = append(to, form)
	case f.Text != "":
		to = append(to, form)
	}
	return to
}

// Number returns a value for JSON, or nil for NaN and infinities.
func Number(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// readingOf returns the reading that a field exports or is computed from.
func readingOf(f *field.Field) field.ID {
	if in, computed := field.Input(f.Desc); computed {
		return in.ID
	}
	return f.Desc.ID
}

// unitOf returns the unit of a field's values: the reading's unit, or its multiple in the field's name.
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

// windowOf returns the period over which the driver averages a field, or 0 if it is unknown or varies.
func windowOf(f *field.Field, of string, interval time.Duration) time.Duration {
	for _, w := range field.Windows(f.Desc) {
		sampled := strings.HasPrefix(w.Mean, "the time between two readings") || strings.HasPrefix(w.Mean, "the watch's interval")
		if sampled && strings.EqualFold(w.Library, of) {
			return interval
		}
	}
	return 0
}
