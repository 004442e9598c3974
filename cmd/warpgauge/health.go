package main

import (
	"path/filepath"
	"strings"

	"warpgauge/extensions/health"
	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
	"warpgauge/pkg/verdict"
)

// newHealth makes what judges the devices.
func (p *pipeline) newHealth(a *app) (*health.Watch, error) {
	rules, err := health.Select(p.cfg.Health.Rules)
	if err != nil {
		return nil, err
	}
	cfg := p.cfg
	o := health.Options{
		View: p.engine.Board().Load, Status: p.engine.Status, Rules: rules,
		Directory: healthDirectory(cfg, a.lookup), BootID: health.BootID(),
		Scope:  cfg.GPUs.String() + " " + cfg.Switches.String() + " " + cfg.CPUs.String(),
		Events: p.bus, Logger: p.log,
	}
	w := health.New(o)
	p.registry.MustRegister(w)
	return w, nil
}

// withHealth adds to a list the readings by which health is judged. Rules that are wrong are
// reported by app.config.
func withHealth(cfg *config.Config, list field.List) field.List {
	if rules, err := health.Select(cfg.Health.Rules); err == nil {
		list.Hidden = rules.Readings(max(cfg.SlowInterval, cfg.Interval))
	}
	return list
}

// healthDirectory is where conditions are kept: what the flag says, even if that is nothing;
// else a place in the directory that systemd has made for this service.
func healthDirectory(cfg *config.Config, lookup func(string) (string, bool)) string {
	if cfg.Source("health-directory") != config.FromDefault {
		return cfg.Health.Directory
	}
	state, _ := lookup("STATE_DIRECTORY")
	if state, _, _ = strings.Cut(state, ":"); !filepath.IsAbs(state) { // it can be several
		return ""
	}
	return filepath.Join(state, "health")
}

// healthSnapshot are the verdicts as the API has them.
func (p *pipeline) healthSnapshot() *verdict.Snapshot { return p.health.Board().Load() }
