package session

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/view"
)

// Report lists, for each device and each field of the list, the current value or the reason for its absence. It
// joins the collectors' explanations (collector.Explainer), the reasons in blank cells, and the states of devices.
// Any goroutine can make one from memory; the caller owns it.
type Report struct {
	Devices []ReportDevice // in the order of the View, then those that only a collector's status has
	// Nowhere lists the fields that no device of the node could have, for example switch fields without a switch.
	Nowhere []ReportField
}

// ReportDevice is a device with its fields, in the order of the list. Fields that such devices cannot have are omitted.
type ReportDevice struct {
	DeviceStatus
	Collector string // the collector that serves it; if there are several, the first
	Fields    []ReportField
}

// ReportField is a field of the list. It has Values, or it is a label with a Text, or the exporter counts it from events, or
// it is Absent.
type ReportField struct {
	*field.Field
	Values  []ReportValue
	Text    string
	Counted bool
	Absent  collector.Explanation // zero if there is a value
}

// ReportValue is the newest value of one series.
type ReportValue struct {
	Labels []collector.Label // distinguish several series of one device and field
	Value  float64           // in the unit of the field instead of the reading
	Time   time.Time         // when it was read, or later
}

// ReportOptions configure NewReport.
type ReportOptions struct {
	StaleAfter time.Duration // as on the page
	Now        time.Time
	// Want selects devices; nil selects all.
	Want func(*collector.Device) bool
}

// NewReport returns the Report for a View, the states of all collectors, and the wanted list.
func NewReport(v *view.View, all []CollectorStatus, list field.List, o ReportOptions) Report {
	b := &builder{o: o, list: list, at: map[string]int{}, levels: map[field.Level]bool{}, sampled: map[field.ID]bool{}}
	for _, s := range v.Sources {
		b.addSource(s)
	}
	for _, d := range Devices(v, all) {
		b.device(d.Collector.Name, &d.DeviceStatus.Device).DeviceStatus = *d.DeviceStatus
	}
	var out Report
	for i := range b.devices {
		if d := &b.devices[i]; o.Want == nil || o.Want(&d.DeviceStatus.Device) {
			out.Devices = append(out.Devices, d.report(b))
		}
	}
	nowhere := collector.ReasonUnsupported
	if len(b.devices) == 0 { // there may be a device that no collector can read
		nowhere = collector.ReasonDeviceAbsent
	}
	for i := range list.Fields {
		f := &list.Fields[i]
		if f.Type == field.Label || b.asked(readingOf(f)) {
			continue
		}
		l := f.Desc.Level
		if l <= field.ComputeInstance {
			l = field.GPU
		}
		out.Nowhere = append(out.Nowhere, ReportField{Field: f, Absent: collector.Explanation{
			Reason: nowhere, Detail: "no collector in use has a device of the kind " + l.String(),
		}})
	}
	return out
}

// builder builds a Report.
type builder struct {
	o       ReportOptions
	list    field.List
	devices []reported
	at      map[string]int // index into devices, by ID
	levels  map[field.Level]bool
	sampled map[field.ID]bool // a device has a column of it
}

// readingOf returns the reading that a field shows or is computed from.
func readingOf(f *field.Field) *field.Descriptor {
	if in, computed := field.Input(f.Desc); computed {
		return in
	}
	return f.Desc
}

// asked reports whether some device of the node has a reading or should have it.
func (b *builder) asked(d *field.Descriptor) bool {
	for l := range b.levels {
		if d.AskedOf(l) {
			return true
		}
	}
	return b.sampled[d.ID]
}

// reported is a device with its sources.
type reported struct {
	ReportDevice
	in []position // the sources that sample it
}

// position is a device of a source.
type position struct {
	*sampled
	device int
}

// sampled is a source with its newest row.
type sampled struct {
	*view.Source
	row     view.Row
	any     bool                 // there is a row
	columns map[reasonKey][]int  // columns of plain readings
	absent  map[reasonKey]uint16 // explanations
}

func (b *builder) addSource(source *view.Source) {
	s := &sampled{Source: source, columns: map[reasonKey][]int{}, absent: map[reasonKey]uint16{}}
	s.any = source.Ring.Latest(&s.row)
	for i, c := range source.Columns {
		if c.Buffer > 0 {
			continue
		}
		k := reasonKey{c.Device, c.Field}
		s.columns[k] = append(s.columns[k], i)
		b.sampled[c.Field] = true
	}
	for _, a := range source.Absent {
		s.absent[reasonKey{a.Device, a.Field}] = a.Explanation
	}
	for i := range source.Devices {
		d := b.device(source.Collector, &source.Devices[i])
		d.in = append(d.in, position{s, i})
	}
}

// columnsOf returns the columns of a reading.
func (p *position) columnsOf(id field.ID) []int { return p.columns[reasonKey{p.device, id}] }

// explanation returns the source's explanation for a missing column.
func (p *position) explanation(id field.ID) (e collector.Explanation, known bool) {
	n, known := p.absent[reasonKey{p.device, id}]
	if !known || int(n) >= len(p.Explanations) {
		return e, false
	}
	return p.Explanations[n], true
}

func (b *builder) device(name string, d *collector.Device) *reported {
	i, known := b.at[d.ID]
	if !known {
		i = len(b.devices)
		b.at[d.ID], b.levels[d.Level] = i, true
		b.devices = append(b.devices, reported{ReportDevice: ReportDevice{Collector: name, DeviceStatus: DeviceStatus{Device: *d}}})
	}
	return &b.devices[i]
}

// report returns a device with its fields. As on the page, the first source with a fresh sample serves it.
func (d *reported) report(b *builder) ReportDevice {
	out := d.ReportDevice
	serving := slices.IndexFunc(d.in, func(p position) bool { return p.fresh(b.o) })
	if serving >= 0 {
		out.Collector = d.in[serving].Collector
	}
	for i := range b.list.Fields {
		f := ReportField{Field: &b.list.Fields[i]}
		reading := readingOf(f.Field)
		f.Counted = reading != f.Desc
		has := func(p position) bool { return len(p.columnsOf(reading.ID)) > 0 }
		if !reading.AskedOf(d.DeviceStatus.Device.Level) && !slices.ContainsFunc(d.in, has) {
			continue
		}
		d.fill(&f, reading, serving)
		out.Fields = append(out.Fields, f)
	}
	return out
}

// fill adds the values of a field, or the reason why there are none.
func (d *reported) fill(f *ReportField, reading *field.Descriptor, serving int) {
	if f.Type == field.Label {
		d.fillLabel(f)
		return
	}
	if serving < 0 {
		d.fillStale(f, reading)
		return
	}
	p := &d.in[serving]
	columns := p.columnsOf(reading.ID)
	if len(columns) == 0 {
		f.Counted, f.Absent = false, d.lacking(p, reading)
		return
	}
	if f.Counted {
		return
	}
	p.addValues(f, columns)
	if len(f.Values) == 0 {
		f.Absent = p.Why(columns[0], p.row.Cells[columns[0]])
	}
}

// addValues adds the values of columns.
func (p *position) addValues(f *ReportField, columns []int) {
	scale, at := field.NewScale(f.Scale), time.Unix(0, p.row.Stamps[p.device])
	for _, c := range columns {
		if v := p.row.Cells[c]; !math.IsNaN(v) {
			f.Values = append(f.Values, ReportValue{Labels: p.Columns[c].Labels, Value: scale.Of(v), Time: at})
		}
	}
}

// fillStale is fill for a device without a fresh sample. As on the page, an XID stays valid. A field that the device
// does not support is not blamed on the device's state.
func (d *reported) fillStale(f *ReportField, reading *field.Descriptor) {
	f.Counted = false
	for i := range d.in {
		p := &d.in[i]
		if reading.ID == field.XIDErrors && p.any {
			p.addValues(f, p.columnsOf(reading.ID))
			f.Values = slices.DeleteFunc(f.Values, func(v ReportValue) bool { return v.Value == 0 })
		}
		if len(f.Values) > 0 {
			return
		}
		if e, known := p.explanation(reading.ID); known {
			f.Absent = e
			return
		}
	}
	f.Absent = d.state()
}

func (d *reported) fillLabel(f *ReportField) {
	for _, p := range d.in {
		if i := slices.IndexFunc(p.Devices[p.device].Facts, func(l collector.Label) bool { return l.Name == f.Name }); i >= 0 {
			f.Text = p.Devices[p.device].Facts[i].Value
			return
		}
	}
	f.Absent = collector.Explanation{Reason: collector.ReasonBlank, Detail: "the device had no such text when its collector was opened"}
	if len(d.in) == 0 {
		f.Absent = d.state()
	}
}

// lacking returns why the device's serving source has no column of a reading.
func (d *reported) lacking(p *position, reading *field.Descriptor) collector.Explanation {
	if e, known := p.explanation(reading.ID); known {
		return e
	}
	for i := range d.in {
		if other := &d.in[i]; len(other.columnsOf(reading.ID)) > 0 {
			return collector.Explanation{
				Reason: collector.ReasonOtherCollector,
				Detail: fmt.Sprintf("the collector %s has it, and %s serves the device", other.Collector, p.Collector),
			}
		}
	}
	if !slices.ContainsFunc(p.Fields.Readings(), func(r field.Reading) bool { return r.Desc.ID == reading.ID }) {
		return collector.Explanation{Reason: collector.ReasonNotListed, Detail: "the collector " + p.Collector + " still serves a list without it"}
	}
	return collector.Explanation{Reason: collector.ReasonUnknown, Detail: "the collector " + p.Collector + " does not say why"}
}

// state returns why a device without a fresh sample has no values.
func (d *reported) state() collector.Explanation {
	e := collector.Explanation{Reason: collector.ReasonDeviceStalled, Detail: d.Reason}
	switch {
	case d.State == Up && d.LastSample.IsZero(), d.Cause == CauseStarting:
		e.Reason, e.Detail = collector.ReasonNotDue, "the device was not sampled yet"
	case d.State == Up:
		e.Detail = "the last sample is too old to be shown"
	case d.State == Lost:
		e.Reason = collector.ReasonDeviceLost
	case d.State == Absent:
		e.Reason = collector.ReasonDeviceAbsent
	case d.State == Released:
		e.Reason = collector.ReasonReleased
	}
	e.Detail = cmp.Or(e.Detail, "the device is "+d.State.String())
	return e
}

// fresh reports whether a device's newest row belongs on a page.
func (p position) fresh(o ReportOptions) bool {
	if !p.any || p.row.Stamps[p.device] == 0 {
		return false
	}
	age := o.Now.Sub(time.Unix(0, p.row.Stamps[p.device])).Abs()
	return age < p.StaleAfter(p.device, o.StaleAfter)
}

// Waits reports whether a field of a device that is up has no value only because it was not read yet or needs two readings.
func (r *Report) Waits() bool {
	return slices.ContainsFunc(r.Devices, func(d ReportDevice) bool {
		return d.State == Up && slices.ContainsFunc(d.Fields, func(f ReportField) bool { return f.Absent.Reason == collector.ReasonNotDue })
	})
}
