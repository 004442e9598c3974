package remote

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"warpgauge/extensions/remote/opamp"
	"warpgauge/pkg/field"
	"warpgauge/pkg/lists"
	"warpgauge/pkg/session"
)

func (r *Remote) identity(ctx context.Context) opamp.Identity {
	cfg := r.o.Config
	hostname := r.o.Hostname
	if hostname == "" {
		hostname, _ = os.Hostname() // the server accepts an empty one
	}
	vendors := fmt.Sprint(cfg.DCGM, cfg.NVML, cfg.ROCm, cfg.Only) // two vendors on a Kubernetes node have one pod each
	return opamp.Identity{
		InstanceID: InstanceID(ctx, hostname, cfg.Web.Address, vendors), Version: r.o.Version, Hostname: hostname, Labels: r.o.Settings.NodeLabels,
	}
}

// Effective implements opamp.Node.
func (r *Remote) Effective() *lists.Offer {
	if l := r.inService.Load(); l != nil {
		return &l.Offer
	}
	s := r.o.Desk.Status().InService
	return &lists.Offer{Origin: s.Origin, Content: field.Format(s.Fields)}
}

// Facts implements opamp.Node.
func (r *Remote) Facts() opamp.Facts {
	all := r.o.Engine.Status()
	s := r.o.Desk.Status()
	out := opamp.Facts{
		ListHash: s.InService.Hash, AppliedSeconds: s.Applied.Unix(), SampleSeconds: -1, List: listComponent(s.Delivery), Series: r.o.Page.Series(),
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
	report := session.NewReport(r.o.Engine.Board().Load(), all, s.InService.Fields, session.ReportOptions{StaleAfter: r.o.Config.EffectiveStaleAfter(), Now: time.Now()})
	for i := range report.Devices {
		for _, f := range report.Devices[i].Fields {
			if f.Absent.Reason != "" {
				out.AbsentFields++
			}
		}
	}
	for _, c := range r.o.Engine.Costs() {
		for _, cost := range c.Sources {
			out.MissedTicks += cost.MissedTicks
			if cost.Samples > 0 {
				out.SampleSeconds = max(out.SampleSeconds, cost.Time.Seconds()/float64(cost.Samples))
			}
		}
	}
	if len(out.Drivers) > 0 {
		r.drivers = out.Drivers
	}
	out.Drivers = r.drivers
	return out
}

// texts returns the set's keys, sorted, without "".
func texts(set map[string]bool) []string {
	delete(set, "")
	return slices.Sorted(maps.Keys(set))
}

// listComponent describes the delivery of lists.
func listComponent(d *lists.Delivery) opamp.Component {
	c := opamp.Component{Name: "list", Status: string(d.Condition()), Since: d.Since, Healthy: true}
	if d.Condition().Bad() {
		c.Healthy, c.Error = false, d.Text
	}
	return c
}

// components describes the collectors and the devices.
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
