package remote

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"warpgauge/extensions/remote/opamp"
	"warpgauge/pkg/field"
	"warpgauge/pkg/lists"
	"warpgauge/pkg/session"
)

// node says what a server may know of this node, and measures the list in service.
type node struct {
	o       Options
	manager *Manager

	mu      sync.Mutex
	changed chan struct{}     // closed at the next change
	missed  map[string]uint64 // ticks by source, now; a session begins at 0
	before  uint64            // ticks of former sessions
	drivers []string          // the last that a list with their label has shown
}

// changePoll is how often watch looks whether the facts have changed.
const changePoll = 2 * time.Second

func (r *Remote) identity(ctx context.Context) opamp.Identity {
	cfg := r.o.Config
	hostname := r.o.Hostname
	if hostname == "" {
		hostname, _ = os.Hostname() // a server can do without
	}
	vendors := fmt.Sprint(cfg.DCGM, cfg.NVML, cfg.ROCm, cfg.Only) // in Kubernetes two vendors on a node have a pod each
	return opamp.Identity{
		InstanceID: InstanceID(ctx, r.o.Settings.Directory, hostname, cfg.Web.Address, vendors), Version: r.o.Version, Hostname: hostname, Labels: r.o.Settings.NodeLabels,
	}
}

// Measure implements Meter.
func (n *node) Measure() Measured {
	n.o.Page.Sync(time.Now())
	out := Measured{Series: n.o.Page.Series(), Spent: map[string]time.Duration{}, Calls: map[string]time.Duration{}}
	for _, c := range n.o.Engine.Costs() {
		for source, s := range c.Sources {
			out.Spent[c.Collector+"/"+source] = s.Time
		}
		for call, cost := range c.Calls {
			out.Calls[call+"/"+c.Collector] = cost.Time
		}
	}
	return out
}

// Changed implements opamp.Node.
func (n *node) Changed() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.changed
}

// watch closes changed when something has changed that a server has to know at once.
func (n *node) watch(ctx context.Context) {
	tick := time.NewTicker(changePoll)
	defer tick.Stop()
	last := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		collectors, devices := components(n.o.Engine.Status())
		list := n.o.Desk.Status()
		now := listComponent(list.Delivery).Status + list.InService.Hash
		for _, c := range slices.Concat(collectors, devices) {
			now += "\n" + c.Name + c.Status
		}
		if now != last {
			last = now
			n.mu.Lock()
			close(n.changed)
			n.changed = make(chan struct{})
			n.mu.Unlock()
		}
	}
}

// Effective implements opamp.Node.
func (n *node) Effective() *lists.Offer {
	if l := n.manager.inService.Load(); l != nil {
		return &l.Offer
	}
	s := n.o.Desk.Status().InService
	return &lists.Offer{Origin: s.Origin, Content: field.Format(s.Fields)}
}

// Facts implements opamp.Node.
func (n *node) Facts() opamp.Facts {
	all := n.o.Engine.Status()
	s := n.o.Desk.Status()
	out := opamp.Facts{
		ListHash: s.InService.Hash, AppliedSeconds: s.Applied.Unix(), SampleSeconds: -1, List: listComponent(s.Delivery), Series: n.o.Page.Series(),
	}
	out.Collectors, out.Devices = components(all)
	models, drivers := map[string]bool{}, map[string]bool{}
	seen := map[string]bool{}
	for _, c := range all {
		for i := range c.Devices {
			st := &c.Devices[i]
			if seen[st.Device.ID] {
				continue
			}
			seen[st.Device.ID] = true
			switch st.State {
			case session.Stalled:
				if st.Cause != session.CauseStarting {
					out.Stalled++
				}
			case session.Lost, session.Absent:
				out.Lost++
			}
			if st.Device.Level == field.GPU {
				out.GPUs++
				models[st.Device.Model] = true
			}
			for _, f := range st.Device.Facts {
				if desc, _, _ := field.ByName(f.Name); desc != nil && desc.Name == "DCGM_FI_DRIVER_VERSION" {
					drivers[f.Value] = true
				}
			}
		}
	}
	out.Models, out.Drivers = texts(models), texts(drivers)
	report := session.NewReport(n.o.Engine.Board().Load(), all, s.InService.Fields, session.ReportOptions{StaleAfter: n.o.Config.EffectiveStaleAfter(), Now: time.Now()})
	for i := range report.Devices {
		for _, f := range report.Devices[i].Fields {
			if f.Absent.Reason != "" {
				out.AbsentFields++
			}
		}
	}
	n.addCosts(&out)
	return out
}

// addCosts adds what sessions count. Counts of sessions that have ended are remembered.
func (n *node) addCosts(out *opamp.Facts) {
	missed := map[string]uint64{}
	for _, c := range n.o.Engine.Costs() {
		for source, s := range c.Sources {
			missed[c.Collector+"/"+source] = s.MissedTicks
			if s.Samples > 0 {
				out.SampleSeconds = max(out.SampleSeconds, s.Time.Seconds()/float64(s.Samples))
			}
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(out.Drivers) > 0 {
		n.drivers = out.Drivers
	}
	out.Drivers = n.drivers
	for source, was := range n.missed {
		if missed[source] < was {
			n.before += was
		}
	}
	n.missed = missed
	out.MissedTicks = n.before
	for _, ticks := range missed {
		out.MissedTicks += ticks
	}
}

// texts returns the keys of a set, sorted, without the empty one.
func texts(set map[string]bool) []string {
	delete(set, "")
	return slices.Sorted(maps.Keys(set))
}

// listComponent is the delivery of lists as a part of the node.
func listComponent(d *lists.Delivery) opamp.Component {
	c := opamp.Component{Name: "list", Status: string(d.Condition()), Since: d.Since, Healthy: true}
	if d.Condition().Bad() {
		c.Healthy, c.Error = false, d.Text
	}
	return c
}

// components returns the collectors and the devices as parts of the node.
func components(all []session.CollectorStatus) (collectors, devices []opamp.Component) {
	for _, c := range all {
		rests := c.Cause == session.CauseReleased || c.Cause == session.CauseStandby
		one := opamp.Component{Name: c.Name, Healthy: c.Up || rests || c.Cause.Quiet(), Status: "up", Since: c.Since}
		if !c.Up {
			one.Status = string(c.Cause)
		}
		if !one.Healthy {
			one.Error = c.Reason
		}
		collectors = append(collectors, one)
		for i := range c.Devices {
			st := &c.Devices[i]
			if l := st.Device.Level; l != field.GPU && l != field.Instance && l != field.ComputeInstance ||
				slices.ContainsFunc(devices, func(d opamp.Component) bool { return d.Name == st.Device.ID }) {
				continue
			}
			one := opamp.Component{Name: st.Device.ID, Healthy: st.State == session.Up || st.State == session.Released, Status: st.State.String(), Since: st.LastSample}
			if !one.Healthy {
				one.Error = st.Reason
			}
			devices = append(devices, one)
		}
	}
	return collectors, devices
}
