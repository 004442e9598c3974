package exporter

import (
	"context"
	"os"
	"slices"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/accumulate"
	"warpgauge/pkg/config"
	"warpgauge/pkg/events"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/field"
	"warpgauge/pkg/lists"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/selfmetrics"
	"warpgauge/pkg/server"
	"warpgauge/pkg/view"
)

// samplerStop is how long the sampler waits for library calls at the end. With HTTP's drain before it and the
// graces of the other stages the process ends within 5 s, as dcgm-exporter does.
const samplerStop = 1500 * time.Millisecond

// Pipeline connects all parts between the libraries and the page. It does not run yet.
type Pipeline struct {
	core
	program *Program
	list    field.List // the first
	store   *accumulate.Store
	Owners  *Owners // nil: the mappings are off, or not wanted
	files   *lists.Files

	*exposition.Renderer                   // extensions start before it exists, see Page
	self                 *selfmetrics.Page // nil if own metrics are off

	Extended []Stage // of extensions
	Routes   []server.Route
}

// core holds the parts that extensions see. Core returns a copy.
type core = Core

// NewPipeline builds everything from the libraries to the rings and the accumulated series.
func (a *Program) NewPipeline(cfg *config.Config, list field.List, log *zap.Logger) (*Pipeline, error) {
	hostname, err := cfg.Hostname(a.Lookup, os.Hostname)
	if err != nil {
		return nil, err
	}
	all, err := a.Collectors(cfg, log)
	if err != nil {
		return nil, err
	}
	registry := selfmetrics.NewRegistry(a.Build.Version, a.Build.Revision)
	engine := a.NewEngine(cfg, all, list, registry, log)
	p := &Pipeline{program: a, list: list, core: Core{
		Config: cfg, Lookup: a.Lookup, Hostname: hostname, Version: a.Build.Version,
		Board: engine.Board(), Engine: engine, Events: new(events.Bus), Past: new(rows.Past), Verdicts: new(events.Board), Kept: new(server.Store),
		Registry: registry, Log: log,
	}}
	p.core.Page = p
	p.NotReady = func() []string {
		now := engine.Status()
		return append(notReady(now), unmet(cfg, all, now)...)
	}
	p.Engine.takenOver = func(text string) { p.Events.Publish(events.Event{Kind: events.Failover, Text: text}) }
	p.States = NewStates(p.Events, time.Now)
	p.Rows = rows.New(p.Board, p.Events)
	p.store = accumulate.New(accumulate.Options{XIDWindow: cfg.XIDWindow, ClockEventWindow: cfg.ClockEventWindow, Rows: p.Rows})
	p.Registry.MustRegister(p.store)
	if cfg.AbsentFields {
		p.Registry.MustRegister(&absentMetric{View: p.Board.Load, Status: p.Engine.Status, StaleAfter: cfg.EffectiveStaleAfter()})
	}
	return p, nil
}

// FindOwners makes the configured mappings.
func (p *Pipeline) FindOwners() {
	if p.Owners = newOwners(p.program, p.Config, p.Engine, p.Registry, p.Log); p.Owners != nil {
		p.core.Owners = p.Owners.keeper
	}
}

// ReadHere returns a Pipeline for the configured list with a quiet log. It does not start extensions.
func (a *Program) ReadHere(ctx context.Context, cfg *config.Config) (*Pipeline, error) {
	a.logNotices(NewLogger(cfg, a.Log))
	log := a.QuietLogger(cfg)
	parsed, err := a.NewFiles(cfg, "", nil).First(ctx, log)
	if err != nil {
		return nil, err
	}
	p, err := a.NewPipeline(cfg, parsed.Fields, log)
	if err == nil {
		p.FindOwners()
	}
	return p, err
}

// ServeLists puts the desk in front of the engine: from now on lists can change.
func (p *Pipeline) ServeLists(first *lists.Parsed, files *lists.Files) {
	p.files = files
	p.Lists = lists.New(first, lists.Options{
		Local: files, Engine: p.Engine, Events: reloads{p.Events}, Usual: p.Config.ReleaseTimeout, Logger: p.Log, Tick: view.Tick,
	})
	p.Registry.MustRegister(p.Lists)
}

// reloads implements lists.Events.
type reloads struct{ bus *events.Bus }

func (r reloads) Publish(text string, bad bool) {
	r.bus.Publish(events.Event{Kind: events.Reload, Text: text, Bad: bad})
}

// AddPages builds the last part. It gathers own metrics for the first time, so all parts with metrics must be
// registered before.
func (p *Pipeline) AddPages() {
	cfg := p.Config
	o := exposition.Options{
		Hostname:             p.Hostname,
		HostnameLabel:        cfg.HostnameLabel,
		OldNamespace:         cfg.OldNamespace,
		ReplaceBlanksInModel: cfg.ReplaceBlanks,
		StaleAfter:           cfg.EffectiveStaleAfter(),
		Store:                p.store,
		Registerer:           p.Registry,
	}
	if p.core.Owners != nil { // a nil *Keeper in the interface would not be nil
		o.Owners = p.core.Owners
	}
	if own := cfg.OwnMetrics(); own != config.MetricsNone {
		p.self = selfmetrics.New(p.Registry, selfmetrics.Options{Lean: own == config.MetricsLean, Registerer: p.Registry, Logger: p.Log})
		o.Self = p.self // as above
	}
	p.Renderer = exposition.New(p.Board, o)
}

// Stages lists the stages in the order of the data flow.
func (p *Pipeline) Stages() []Stage {
	out := []Stage{
		{Name: "sampler", Run: p.Engine.Run, Grace: samplerStop + 400*time.Millisecond},
		{Name: "rows", Run: p.Rows.Run},
		{Name: "states", Run: func(ctx context.Context) error { return p.States.Run(ctx, p.Board, p.Engine.Status) }},
	}
	out = append(out, p.Owners.stages()...)
	out = append(out, Stage{Name: "renderer", Run: p.Renderer.Run})
	if p.self != nil {
		out = append(out, Stage{Name: "own metrics", Run: p.self.Run})
	}
	return out
}

// watches returns the stages that ask for a reload when a file of the list changes.
func (p *Pipeline) watches() (out []Stage) {
	for _, path := range p.files.Paths() {
		out = append(out, Stage{
			Name: "watch of " + path,
			Run: func(ctx context.Context) error {
				seen := func() ([]byte, bool) { return p.files.Seen(path) }
				return config.Watch(ctx, path, seen, func() { p.Lists.RequestReload("file change") })
			},
		})
	}
	return out
}

// Core returns the exporter for extensions.
func (p *Pipeline) Core() Core { return p.core }

// Extend starts the extensions: their stages are in Extended, their paths in Routes.
func (p *Pipeline) Extend() error {
	for _, e := range p.program.Extensions {
		stages, routes, err := e.Start(p.core)
		if err != nil {
			return err
		}
		p.Extended = append(p.Extended, stages...)
		p.Routes = append(p.Routes, routes...)
	}
	return nil
}

// Added returns the names of the fields that devices of a collector have in addition to the list, for extensions.
func (p *Pipeline) Added(collector string, dialect bool) []string {
	return view.Added(slices.DeleteFunc(slices.Clone(p.Board.Load().Sources), func(s *view.Source) bool { return s.Collector != collector }), dialect)
}
