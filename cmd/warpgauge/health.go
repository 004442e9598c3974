package main

import (
	"path/filepath"
	"strings"

	"go.uber.org/zap"

	"warpgauge/extensions/health"
	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
	"warpgauge/pkg/verdict"
	"warpgauge/pkg/view"
)

// newHealth makes what judges the devices; nil if health is off.
func (p *pipeline) newHealth(a *app, list field.List) (*health.Watch, error) {
	rules, err := health.Select(p.cfg.Health.Rules)
	if err != nil || p.cfg.Health.Mode == config.HealthOff {
		return nil, err
	}
	cfg := p.cfg
	o := health.Options{
		Rows: p.rows, Status: p.engine.Status, Rules: rules,
		Directory: healthDirectory(cfg, a.lookup), BootID: health.BootID(),
		Scope:  cfg.GPUs.String() + " " + cfg.Switches.String() + " " + cfg.CPUs.String(),
		Events: p.bus, Logger: p.log,
	}
	log := p.log.Named("health")
	if added := addedFields(cfg, list, nil, ""); len(added) > 0 {
		log.Info("health reads fields that the list does not name; --health=off reads none", zap.Int("fields", len(added)), zap.Strings("names", added))
	}
	w := health.New(o)
	p.registry.MustRegister(w)
	return w, nil
}

// withHealth adds to a list the readings by which health is judged. Rules that are wrong are
// reported by app.config.
func withHealth(cfg *config.Config, list field.List) field.List {
	if rules, err := health.Select(cfg.Health.Rules); err == nil && cfg.Health.Mode == config.HealthOn {
		list.Hidden = rules.Readings(max(cfg.SlowInterval, cfg.Interval))
	}
	return list
}

// addedFields returns the names of the fields that health reads in addition to a list; with
// a View, of those that the devices of a collector have.
func addedFields(cfg *config.Config, list field.List, v *view.View, collector string) (out []string) {
	list = withHealth(cfg, list)
	for i := range list.Hidden {
		d := list.Hidden[i].Desc
		if list.Hides(d.ID) && (v == nil || isRead(v, collector, d.ID)) {
			out = append(out, d.Name)
		}
	}
	return out
}

// isRead reports whether a collector reads a field of any device.
func isRead(v *view.View, collector string, id field.ID) bool {
	for _, s := range v.Sources {
		for i := range s.Columns {
			if s.Collector == collector && s.Columns[i].Field == id {
				return true
			}
		}
	}
	return false
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

// healthSnapshot returns the verdicts; none if health is off.
func (p *pipeline) healthSnapshot() *verdict.Snapshot {
	if p.health == nil {
		return &verdict.Snapshot{}
	}
	return p.health.Board().Load()
}
