package exporter

import (
	"fmt"
	"slices"
	"strings"

	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
	"warpgauge/pkg/session"
)

// unmet lists missing requirements of an exporter that serves something: a collector enabled by name, or a GPU of the
// required vendor, is missing. It accepts devices that an operator has released or another collector serves.
func unmet(cfg *config.Config, table []Vendor, all []session.CollectorStatus) (reasons []string) {
	found := cfg.Require == config.RequireNone
	for _, c := range all {
		i := slices.IndexFunc(table, func(v Vendor) bool { return v.Name == c.Name })
		if i < 0 {
			continue
		}
		wanted := c.Up || c.Cause == session.CauseReleased || c.Cause == session.CauseStandby
		if table[i].Setting == config.On && !wanted && c.Cause != session.CauseOpening {
			reasons = append(reasons, fmt.Sprintf("collector %s, which is enabled by name: %s", c.Name, c.Reason))
		}
		if cfg.Require == config.RequireAny || table[i].Maker != nil && strings.EqualFold(cfg.Require, table[i].Maker.Name) {
			found = found || c.Cause == session.CauseReleased || hasGPU(c)
		}
	}
	if !found {
		reasons = append(reasons, fmt.Sprintf("--require=%s: no such GPU is up", cfg.Require))
	}
	return reasons
}

func hasGPU(c session.CollectorStatus) bool {
	return slices.ContainsFunc(c.Devices, func(d session.DeviceStatus) bool {
		return d.Device.Level == field.GPU && d.State == session.Up
	})
}

// notReady lists basic reasons: a collector that is still opening, devices that have not been sampled, or nothing to serve.
func notReady(all []session.CollectorStatus) (reasons []string) {
	up := false
	for _, c := range all {
		up = up || c.Up || c.Cause == session.CauseReleased || c.Cause == session.CauseStandby // which was wanted
		if !c.Up && c.Cause == session.CauseOpening {
			reasons = append(reasons, fmt.Sprintf("collector %s: %s", c.Name, c.Reason))
		}
		starting := 0
		for _, d := range c.Devices {
			if d.Cause == session.CauseStarting {
				starting++
			}
		}
		if starting > 0 {
			reasons = append(reasons, fmt.Sprintf("collector %s: %s not sampled yet", c.Name, config.Counted(starting, "device")))
		}
	}
	switch {
	case len(all) == 0:
		return []string{"no collector is enabled"}
	case up || len(reasons) > 0:
		return reasons
	}
	for _, c := range all {
		reasons = append(reasons, fmt.Sprintf("collector %s: %s", c.Name, c.Reason))
	}
	return reasons
}
