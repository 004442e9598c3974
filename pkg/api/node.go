package api

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

// node is what is known at one time: the devices of all collectors, each once.
type node struct {
	now        time.Time
	view       *view.View
	collectors []session.CollectorStatus
	devices    []device
	byID       map[string]int // in devices
	o          *Options
}

// device is a device with what supplies its values.
type device struct {
	*session.DeviceStatus
	collector *session.CollectorStatus
	source    *view.Source // nil: none is on the board
	index     int          // in source.Devices
}

// rank says which of two collectors' words on a device count: that of the one which
// supplies values, of these the one for which it is up.
func (d *device) rank() int {
	rank := 0
	if d.source != nil {
		rank += 2
	}
	if d.State == session.Up {
		rank++
	}
	return rank
}

func newNode(o *Options) *node {
	n := &node{now: o.Now(), view: o.View(), collectors: o.Status(), byID: map[string]int{}, o: o}
	type cell struct{ source, index int }
	type key struct{ collector, id string }
	shown := map[key]cell{}
	for i, s := range n.view.Sources {
		for j := range s.Devices {
			k := key{s.Collector, s.Devices[j].ID}
			if _, taken := shown[k]; !taken {
				shown[k] = cell{i, j}
			}
		}
	}
	for i := range n.collectors {
		c := &n.collectors[i]
		for j := range c.Devices {
			d := device{DeviceStatus: &c.Devices[j], collector: c}
			if at, there := shown[key{c.Name, d.Device.ID}]; there {
				d.source, d.index = n.view.Sources[at.source], at.index
			}
			at, known := n.byID[d.Device.ID]
			switch {
			case !known:
				n.byID[d.Device.ID] = len(n.devices)
				n.devices = append(n.devices, d)
			case d.rank() > n.devices[at].rank():
				n.devices[at] = d
			}
		}
	}
	return n
}

// devicesAnswer makes the answer of /api/v1/devices.
func (n *node) devicesAnswer() *Devices {
	out := &Devices{Time: timeOf(n.now), Hostname: n.o.Hostname, Version: n.o.Version, Recording: n.o.Recording,
		History: n.o.History != nil, Recorder: n.o.Recorder != nil, Collectors: []Collector{}, Devices: make([]Device, 0, len(n.devices))}
	for i := range n.collectors {
		c := &n.collectors[i]
		out.Collectors = append(out.Collectors, Collector{Name: c.Name, Up: c.Up, Cause: string(c.Cause), Reason: c.Reason})
	}
	for i := range n.devices {
		d := n.device(&n.devices[i])
		out.Simulated = out.Simulated || d.Simulated
		out.Devices = append(out.Devices, d)
	}
	return out
}

// simulated reports whether a device is invented: simulated GPUs say so in their model.
func simulated(d *collector.Device) bool { return strings.Contains(d.Model, "(simulated)") }

func (n *node) device(d *device) Device {
	dev := &d.Device
	out := Device{
		ID: dev.ID, Parent: dev.Parent, Kind: dev.Level.String(), Collector: d.collector.Name,
		State: d.State.String(), Cause: string(d.Cause), Reason: d.Reason,
		LastSample: known(d.LastSample), Session: known(d.collector.Since), Simulated: simulated(dev),
		GPU: dev.GPU, Labels: pairs(dev.Labels), Facts: pairs(dev.Facts),
	}
	if since, seen := n.o.Events.since(d.collector.Name, dev.ID, d.State); seen {
		out.Since = known(since)
	}
	if d.source != nil {
		out.Interval = d.source.IntervalOf(d.index).Seconds()
	}
	if dev.Level == field.Link { // of 36 links each would repeat its GPU
		return out
	}
	out.UUID, out.PCIBusID, out.Node, out.Model = dev.UUID, dev.PCIBusID, dev.Node, dev.Model
	if i := dev.Instance; i != (collector.Instance{}) {
		out.Instance = &Instance{Profile: i.Profile, ID: i.ID, ComputeID: i.ComputeID, UUID: i.UUID}
	}
	out.Users, out.Processes = n.o.Users(dev), n.o.Processes(dev)
	return out
}

// health makes the answer of /api/v1/health.
func (n *node) health() *Health {
	out := &Health{Time: timeOf(n.now), Reasons: n.o.NotReady(), Devices: []DeviceHealth{}}
	out.Ready = len(out.Reasons) == 0
	worst := -1
	for i := range n.devices {
		d := &n.devices[i]
		if d.Device.Level == field.Link || d.Device.Level == field.Core {
			continue
		}
		h := DeviceHealth{ID: d.Device.ID, GPU: d.Device.GPU}
		level, reason := verdict(d)
		h.State, h.Reason = verdicts[level], reason
		if since, seen := n.o.Events.since(d.collector.Name, h.ID, d.State); seen && d.State != session.Up {
			h.Since = known(since)
		}
		worst = max(worst, level)
		out.Devices = append(out.Devices, h)
	}
	out.State = verdicts[max(worst, 0)]
	if worst < 0 {
		out.State = verdicts[unknownHealth]
	}
	return out
}

// Verdicts on a device, the worst last: what is not known can be anything but good.
const (
	okHealth = iota
	unknownHealth
	degradedHealth
	failedHealth
)

var verdicts = [...]string{"ok", "unknown", "degraded", "failed"}

// Readings that say something of a device's health.
const (
	rowRemapFailure field.ID = 395 // 1: a row of memory could not be replaced
	rowRemapPending field.ID = 396 // 1: a row is replaced at the next reset
)

// verdict judges by the device's state, and by those readings of the list that say something
// of its health.
func verdict(d *device) (level int, reason string) {
	text := cmp.Or(d.Reason, string(d.Cause))
	switch d.State {
	case session.Lost, session.Absent:
		return failedHealth, cmp.Or(text, d.State.String())
	case session.Stalled, session.Released:
		return unknownHealth, cmp.Or(text, d.State.String())
	}
	if d.source == nil {
		return unknownHealth, "no values yet"
	}
	var row ring.Row
	if !d.source.Ring.Latest(&row) || len(row.Cells) != len(d.source.Columns) {
		return unknownHealth, "no values yet"
	}
	note := func(l int, text string) {
		if l > level {
			level, reason = l, text
		}
	}
	for i := range d.source.Columns {
		c := &d.source.Columns[i]
		v := row.Cells[i]
		if c.Device != d.index || !(v > 0) {
			continue
		}
		switch c.Field {
		case field.GPUHealth:
			of := "a health watch"
			for _, l := range c.Labels {
				if l.Name == "health_watch" {
					of = "health watch " + l.Value
				}
			}
			if v >= 20 {
				note(failedHealth, of+" reports a failure")
			} else {
				note(degradedHealth, of+" reports a warning")
			}
		case rowRemapFailure:
			note(failedHealth, "a row of its memory could not be remapped")
		case rowRemapPending:
			note(degradedHealth, "a row of its memory is to be remapped: reset the GPU when it is free")
		}
	}
	return level, reason
}

// list makes the answer of /api/v1/list.
func (o *Options) list() (*List, error) {
	if o.List == nil || o.Fields == nil {
		return nil, &Problem{Status: http.StatusNotFound, Detail: "no field list is known: this is a recording"}
	}
	out := o.List()
	list := o.Fields()
	out.Fields = make([]ListField, 0, len(list.Fields))
	intervals := o.intervals(list)
	for i := range list.Fields {
		f := &list.Fields[i]
		l := ListField{Name: f.Name, Type: f.Type.String(), Help: f.Help, Unit: unitOf(f), Interval: intervals[readingOf(f)].Seconds()}
		if f.Type != field.Label {
			l.Metric = f.Name
		}
		out.Fields = append(out.Fields, l)
	}
	return &out, nil
}

// timeOf is a time as answers have it.
func timeOf(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// known is a time of an answer; nil if it is zero.
func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = timeOf(t)
	return &t
}

// pairs are labels as answers have them.
func pairs(in []collector.Label) map[string]string {
	if len(in) == 0 {
		return nil
	}
	out := make(map[string]string, len(in))
	for _, l := range in {
		if l.Value != "" {
			out[l.Name] = l.Value
		}
	}
	return out
}
