package main

import (
	"path/filepath"

	"warpgauge/pkg/accumulate"
	"warpgauge/pkg/config"
	"warpgauge/pkg/health"
)

// newHealth makes what judges the devices.
func (p *pipeline) newHealth(a *app) *health.Watch {
	return health.New(health.Options{
		View:      p.engine.Board().Load,
		Status:    p.engine.Status,
		Directory: healthDirectory(p.cfg, a.lookup),
		Logger:    p.log,
	})
}

// healthDirectory is where conditions are kept: what the flag says, even if that is nothing;
// else a place in the directory that systemd has made for this service.
func healthDirectory(cfg *config.Config, lookup func(string) (string, bool)) string {
	if cfg.Source("health-directory") != config.FromDefault {
		return cfg.Health.Directory
	}
	state, ok := lookup("STATE_DIRECTORY")
	if !ok || !filepath.IsAbs(state) {
		return ""
	}
	return filepath.Join(state, "health")
}

// xid is an XID of a row as an observation of health.
func xid(e *accumulate.Event, source string) health.Observation {
	return health.Observation{Reason: "xid", Code: e.XID, Device: e.Device.ID, PCIBusID: e.Device.PCIBusID, Time: e.Time, Source: source}
}
