package remote

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"warpgauge/extensions/remote/opamp"
	"warpgauge/pkg/field"
	"warpgauge/pkg/file"
	"warpgauge/pkg/lists"
	"warpgauge/pkg/session"
)

// identity returns this node's identity. Exporters on one machine have different ids.
func (r *Remote) identity(ctx context.Context) opamp.Identity {
	cfg := r.o.Config
	hostname := r.o.Hostname
	if hostname == "" {
		hostname, _ = os.Hostname() // the server accepts an empty one
	}
	vendors := fmt.Sprint(cfg.DCGM, cfg.NVML, cfg.ROCm, cfg.Only) // two vendors on a Kubernetes node have one pod each
	machine, _ := file.NewReader(64).Read(ctx, "/etc/machine-id") // the file is optional
	names := []string{"warpgauge", hostname, cfg.Web.Address, vendors, string(bytes.TrimSpace(machine))}
	sum := sha256.Sum256([]byte(strings.Join(names, "\n")))
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80 // RFC 9562: version 8, custom
	return opamp.Identity{InstanceID: uuid.UUID(sum[:16]), Version: r.o.Version, Hostname: hostname, Labels: r.o.Settings.NodeLabels}
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
	condition := s.Delivery.Condition()
	out := opamp.Facts{
		List:     opamp.Component{Status: string(condition), Healthy: !condition.Bad(), Error: s.Delivery.Text, Since: s.Delivery.Since},
		ListHash: s.InService.Hash, AppliedSeconds: s.Applied.Unix(), SampleSeconds: -1, Series: r.o.Page.Series(), Collectors: collectors(all),
	}
	models, drivers := map[string]bool{}, map[string]bool{}
	report := session.NewReport(r.o.Engine.Board().Load(), all, s.InService.Fields, session.ReportOptions{StaleAfter: r.o.Config.EffectiveStaleAfter(), Now: time.Now()})
	for i := range report.Devices {
		d := &report.Devices[i]
		switch {
		case d.State == session.Lost, d.State == session.Absent:
			out.Lost++
		case d.State == session.Stalled && d.Cause != session.CauseStarting:
			out.Stalled++
		}
		switch d.Device.Level {
		case field.GPU:
			out.GPUs++
			models[d.Device.Model] = true
			fallthrough
		case field.Instance, field.ComputeInstance:
			out.Devices = append(out.Devices, opamp.Component{
				Name: d.Device.ID, Healthy: d.State == session.Up || d.State == session.Released, Status: d.State.String(), Error: d.Reason, Since: d.LastSample,
			})
		}
		for _, f := range d.Device.Facts {
			if desc, _, _ := field.ByName(f.Name); desc != nil && desc.Name == "DCGM_FI_DRIVER_VERSION" {
				drivers[f.Value] = true
			}
		}
		for _, f := range d.Fields {
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
	if found := texts(drivers); len(found) > 0 {
		r.drivers = found
	}
	out.Models, out.Drivers = texts(models), r.drivers
	return out
}

// collectors describes the collectors.
func collectors(all []session.CollectorStatus) (out []opamp.Component) {
	for _, c := range all {
		rests := c.Cause == session.CauseReleased || c.Cause == session.CauseStandby
		one := opamp.Component{Name: c.Name, Healthy: c.Up || rests || c.Cause.Quiet(), Status: "up", Error: c.Reason, Since: c.Since}
		if !c.Up {
			one.Status = string(c.Cause)
		}
		out = append(out, one)
	}
	return out
}

// texts returns the set's keys, sorted, without "".
func texts(set map[string]bool) []string {
	delete(set, "")
	return slices.Sorted(maps.Keys(set))
}
