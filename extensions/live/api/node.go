package api

import (
	"cmp"
	"strings"
	"time"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/events"
	"warpgauge/pkg/field"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

// node is a snapshot of the node: the devices of all collectors, without duplicates.
type node struct {
	now        time.Time
	view       *view.View
	collectors []session.CollectorStatus
	devices    []session.Device
	byID       map[string]int             // index into devices
	verdicts   map[string]*events.Verdict // by device; see setVerdicts
	o          *Options
}

func newNode(o *Options) *node {
	n := &node{now: o.Now(), view: o.Board.Load(), collectors: o.Node.Status(), byID: map[string]int{}, o: o}
	n.devices = session.Devices(n.view, n.collectors)
	for i := range n.devices {
		n.byID[n.devices[i].Device.ID] = i
	}
	return n
}

// setVerdicts sets the verdicts that device uses.
func (n *node) setVerdicts(s *events.Snapshot) {
	n.verdicts = make(map[string]*events.Verdict, len(s.Verdicts))
	for i := range s.Verdicts {
		n.verdicts[s.Verdicts[i].Device.ID] = &s.Verdicts[i]
	}
}

// devicesAnswer returns the answer of /api/v1/devices: the devices of collectors, then those that only a verdict knows.
func (n *node) devicesAnswer() *apiv1.Devices {
	n.o.viewed()
	out := &apiv1.Devices{Time: timeOf(n.now), Hostname: n.o.Hostname, Version: n.o.Version, Recording: n.o.Recording,
		History: n.o.Past.History != nil, Recorder: n.o.Past.Recordings != nil && n.o.Download, Collectors: []apiv1.Collector{}, Devices: make([]apiv1.Device, 0, len(n.devices))}
	for i := range n.collectors {
		c := &n.collectors[i]
		one := apiv1.Collector{Name: c.Name, Up: c.Up, Cause: string(c.Cause), Reason: c.Reason}
		if v := n.o.Node.Vendor(c.Name); v != nil {
			one.Vendor = v.Name
		}
		out.Collectors = append(out.Collectors, one)
	}
	verdicts := n.o.Verdicts.Load()
	n.setVerdicts(verdicts)
	for i := range n.devices {
		d := n.device(&n.devices[i])
		out.Simulated = out.Simulated || d.Simulated
		out.Devices = append(out.Devices, d)
	}
	for i := range verdicts.Verdicts {
		v := &verdicts.Verdicts[i]
		if _, known := n.byID[v.Device.ID]; !known && v.State >= events.Degraded {
			gone := session.Device{DeviceStatus: &session.DeviceStatus{Device: v.Device, State: session.Absent}, Collector: &session.CollectorStatus{Name: v.Collector}}
			out.Devices = append(out.Devices, n.device(&gone))
		}
	}
	return out
}

func (n *node) device(d *session.Device) apiv1.Device {
	dev := &d.DeviceStatus.Device
	out := apiv1.Device{
		ID: dev.ID, Parent: dev.Parent, Kind: dev.Level.String(), Collector: d.Collector.Name,
		State: d.State.String(), Cause: string(d.Cause), Reason: d.Reason,
		LastSample: known(d.LastSample), Session: known(d.Collector.Since), Simulated: strings.Contains(dev.Model, "(simulated)"),
		GPU: dev.GPU, Labels: pairs(dev.Labels), Facts: pairs(dev.Facts),
	}
	if n.o.States != nil {
		if since, seen := n.o.States.Since(dev.ID, d.State); seen {
			out.Since = known(since)
		}
	}
	if d.State == session.Up {
		out.Reason = dev.Unread
	}
	out.Status = apiv1.Status{Word: out.State, Why: cmp.Or(out.Reason, string(d.Cause)), Since: out.Since}
	if v := n.verdicts[dev.ID]; v != nil && (v.State >= events.Degraded || v.State == events.Unknown && d.State == session.Up) {
		word := map[bool]string{true: v.Reason}[v.State == events.Unknown] // stalled, as without a verdict
		out.Status = apiv1.Status{Word: cmp.Or(word, v.State.String()), Why: cmp.Or(v.Text, v.Reason), Since: known(v.Since)}
		if v.Action != events.ActionNone {
			out.Status.Why += "; action: " + string(v.Action)
		}
	}
	if d.Source != nil {
		out.Interval = d.Source.IntervalOf(d.Index).Seconds()
	}
	if dev.Level == field.Link { // each of 36 links would repeat its GPU's users
		return out
	}
	out.UUID, out.PCIBusID, out.Node, out.Model = dev.UUID, dev.PCIBusID, dev.Node, dev.Model
	if i := dev.Instance; i != (collector.Instance{}) {
		out.Instance = &apiv1.Instance{Profile: i.Profile, ID: i.ID, ComputeID: i.ComputeID, UUID: i.UUID}
	}
	if n.o.People != nil {
		out.Users, out.Processes = n.o.People.Users(dev), n.o.People.Processes(dev)
	}
	return out
}

// health returns the answer of /api/v1/health.
func (o *Options) health() *apiv1.Health {
	s := o.Verdicts.Load()
	out := &apiv1.Health{Time: timeOf(o.Now()), Reasons: o.NotReady(), Devices: make([]apiv1.DeviceHealth, 0, len(s.Verdicts))}
	out.Ready = len(out.Reasons) == 0
	worst := events.OK
	if len(s.Verdicts) == 0 {
		worst = events.Unknown
	}
	for i := range s.Verdicts {
		v := &s.Verdicts[i]
		worst = max(worst, v.State)
		out.Devices = append(out.Devices, deviceHealth(v))
	}
	out.State = worst.String()
	return out
}

func deviceHealth(v *events.Verdict) apiv1.DeviceHealth {
	out := apiv1.DeviceHealth{
		ID: v.Device.ID, GPU: v.Device.GPU, State: v.State.String(), Reason: v.Reason, Text: v.Text, Action: string(v.Action), Since: known(v.Since),
	}
	for i := range v.Conditions {
		c := &v.Conditions[i]
		to := apiv1.HealthCondition{Reason: c.Reason, State: c.State.String(), Action: string(c.Action), Text: c.Text, Since: timeOf(c.Since), Last: timeOf(c.Last)}
		for _, e := range c.Evidence {
			to.Evidence = append(to.Evidence, apiv1.HealthEvidence{Time: timeOf(e.Time), Source: e.Source, Text: e.Text})
		}
		out.Conditions = append(out.Conditions, to)
	}
	for _, u := range v.Unjudged {
		out.Unjudged = append(out.Unjudged, apiv1.HealthUnjudged{Rule: u.Rule, Why: string(u.Why)})
	}
	return out
}

// timeOf converts a time for an answer.
func timeOf(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// known converts a time for an answer; it returns nil for the zero time.
func known(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = timeOf(t)
	return &t
}

// pairs converts labels for an answer.
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
