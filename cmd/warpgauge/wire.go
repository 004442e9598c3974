package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"warpgauge/extensions/health"
	"warpgauge/extensions/health/signs"
	"warpgauge/extensions/live/api"
	"warpgauge/extensions/live/history"
	"warpgauge/extensions/live/recorder"
	"warpgauge/pkg/absence"
	"warpgauge/pkg/accumulate"
	"warpgauge/pkg/config"
	"warpgauge/pkg/events"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/field"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/rules"
	"warpgauge/pkg/selfmetrics"
	"warpgauge/pkg/server"
	"warpgauge/pkg/session"
)

// samplerStop is how long the sampler waits for library calls at the end. With
// the drain of HTTP before it and the graces of the other stages the process
// ends within 5 s, as dcgm-exporter does.
const samplerStop = 1500 * time.Millisecond

// pipeline is the way of a value, from the library to the page, not yet running.
type pipeline struct {
	cfg      *config.Config
	log      *zap.Logger
	hostname string

	registry *prometheus.Registry
	engine   *engine
	bus      *events.Bus
	states   *events.States
	rows     *rows.Reader
	store    *accumulate.Store
	history  *history.History // nil if none is kept
	events   *api.Log         // nil if neither page nor API are served and nothing is recorded
	recorder *recorder.Recorder
	health   *health.Watch
	witness  *witness
	signs    *signs.Signs
	owners   *owners // nil if it is not asked who uses a device
	renderer *exposition.Renderer
	self     *selfmetrics.Page // nil if own metrics are off
	routes   []server.Route    // of extensions
}

// newPipeline builds everything up to the rings and what is accumulated from
// them.
func newPipeline(a *app, cfg *config.Config, all []vendor, list field.List, log *zap.Logger) (*pipeline, error) {
	hostname, err := cfg.Hostname(a.lookup, os.Hostname)
	if err != nil {
		return nil, err
	}
	p := &pipeline{
		cfg: cfg, log: log, hostname: hostname,
		registry: selfmetrics.NewRegistry(a.build.Version, a.build.Revision),
		bus:      new(events.Bus),
	}
	if cfg.Web.Page != config.PageOff || cfg.Recorder.Directory != "" {
		p.events, p.states = api.NewLog(time.Now), events.NewStates(p.bus, nil)
		p.events.Subscribe(p.bus)
	}
	p.engine = a.newEngine(cfg, all, list, p.registry, log)
	p.engine.takenOver = func(collector string) {
		p.bus.Publish(events.Event{Kind: events.Failover, Text: "collector " + collector + " serves the GPUs now"})
	}
	p.rows = rows.New(p.engine.Board(), p.bus)
	p.store = accumulate.New(accumulate.Options{XIDWindow: cfg.XIDWindow, ClockEventWindow: cfg.ClockEventWindow, Rows: p.rows})
	if cfg.Recorder.Directory != "" {
		p.rows.Follow(&rules.Occurrences{})
	}
	p.registry.MustRegister(p.store)
	if p.health, err = p.newHealth(a, list); err != nil {
		return nil, err
	}
	if p.health != nil {
		p.witness = newWitness(a, p, all)
		p.bus.Gate = p.witness
	}
	if cfg.AbsentFields {
		p.registry.MustRegister(&absence.Metric{View: p.engine.Board().Load, Status: p.engine.Status, StaleAfter: cfg.EffectiveStaleAfter()})
	}
	if p.events != nil && cfg.History.Wanted() { // else nothing reads it
		p.history = history.New(history.Options{
			Rows: p.rows, MaxAge: cfg.History.Age, MaxBytes: cfg.History.Bytes, Registerer: p.registry,
		})
	}
	p.owners = newOwners(a, cfg, p.engine, p.registry, log)
	if p.health != nil {
		p.signs = p.newSigns()
	}
	return p, nil
}

// addPages builds the last part. Own metrics are gathered for the first time
// here, so everything that has some is registered by now.
func (p *pipeline) addPages() {
	cfg := p.cfg
	o := exposition.Options{
		Hostname:             p.hostname,
		HostnameLabel:        cfg.HostnameLabel,
		OldNamespace:         cfg.OldNamespace,
		ReplaceBlanksInModel: cfg.ReplaceBlanks,
		CreatedLines:         cfg.CreatedLines,
		StaleAfter:           cfg.EffectiveStaleAfter(),
		Store:                p.store,
		Registerer:           p.registry,
	}
	if p.owners != nil { // a nil *Keeper in the interface would not be nil
		o.Owners = p.owners.keeper
	}
	if own := cfg.OwnMetrics(); own != config.MetricsNone {
		p.self = selfmetrics.New(p.registry, selfmetrics.Options{Lean: own == config.MetricsLean, CreatedLines: cfg.CreatedLines, Registerer: p.registry, Logger: p.log})
		o.Self = p.self // as above
	}
	p.renderer = exposition.New(p.engine.Board(), o)
}

// stages lists what runs, in the order of the data flow.
func (p *pipeline) stages() []stage {
	out := []stage{{name: "sampler", run: p.engine.Run, grace: samplerStop + 400*time.Millisecond}}
	out = append(out, stage{name: "rows", run: p.rows.Run, grace: shortGrace})
	if p.history != nil {
		out = append(out, stage{name: "history", run: p.history.Run, grace: shortGrace})
	}
	if p.health != nil {
		out = append(out, stage{name: "health", run: p.health.Run, grace: shortGrace}, stage{name: "early signs", run: p.signs.Run, grace: shortGrace})
		out = append(out, p.witness.stages()...)
	}
	out = append(out, p.owners.stages()...)
	out = append(out, stage{name: "renderer", run: p.renderer.Run, grace: shortGrace})
	if p.self != nil {
		out = append(out, stage{name: "own metrics", run: p.self.Run, grace: shortGrace})
	}
	return out
}

// reasons lists why /readyz answers 503.
func reasons(cfg *config.Config, table []vendor, all []session.CollectorStatus) []string {
	return append(notReady(all), unmet(cfg, table, all)...)
}

// unmet lists why the exporter is not ready although something is served: a collector
// that was enabled by name, or a GPU of the required vendor, is not there. What an
// operator has released, or what another collector serves, is as it should be.
func unmet(cfg *config.Config, table []vendor, all []session.CollectorStatus) (reasons []string) {
	found := cfg.Require == config.RequireNone
	for _, c := range all {
		i := slices.IndexFunc(table, func(v vendor) bool { return v.name == c.Name })
		if i < 0 {
			continue
		}
		wanted := c.Up || c.Cause == session.CauseReleased || c.Cause == session.CauseStandby
		if table[i].setting == config.On && !wanted && c.Cause != session.CauseOpening {
			reasons = append(reasons, fmt.Sprintf("collector %s, which is enabled by name: %s", c.Name, c.Reason))
		}
		if cfg.Require == config.RequireAny || table[i].maker != nil && strings.EqualFold(cfg.Require, table[i].maker.Name) {
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

// notReady lists the first part of them: a collector that is still being
// opened, devices that have not been sampled, or nothing to serve at all.
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
			reasons = append(reasons, fmt.Sprintf("collector %s: %s not sampled yet", c.Name, count(starting, "device")))
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
