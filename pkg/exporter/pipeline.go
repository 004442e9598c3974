package exporter

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
	program  *Program
	cfg      *config.Config
	table    []Vendor
	list     field.List // the first
	log      *zap.Logger
	Hostname string

	Registry *prometheus.Registry
	Engine   *Engine
	Events   *events.Bus
	Rows     *rows.Reader
	store    *accumulate.Store
	verdicts *events.Board
	states   *States
	Owners   *Owners // nil: the mappings are off, or not wanted
	Renderer *exposition.Renderer
	self     *selfmetrics.Page // nil if own metrics are off
	files    *lists.Files
	desk     *lists.Desk

	Extended []Stage // of extensions
	Routes   []server.Route
}

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
	p := &Pipeline{
		program: a, cfg: cfg, table: all, list: list, log: log, Hostname: hostname,
		Registry: selfmetrics.NewRegistry(a.Build.Version, a.Build.Revision),
		Events:   new(events.Bus), verdicts: new(events.Board),
	}
	p.Engine = a.NewEngine(cfg, all, list, p.Registry, log)
	p.Engine.takenOver = func(collector string) {
		p.Events.Publish(events.Event{Kind: events.Failover, Text: "collector " + collector + " serves the GPUs now"})
	}
	p.states = NewStates(p.Events, time.Now)
	p.Rows = rows.New(p.Engine.Board(), p.Events)
	p.store = accumulate.New(accumulate.Options{XIDWindow: cfg.XIDWindow, ClockEventWindow: cfg.ClockEventWindow, Rows: p.Rows})
	p.Registry.MustRegister(p.store)
	if cfg.AbsentFields {
		p.Registry.MustRegister(&absentMetric{View: p.Engine.Board().Load, Status: p.Engine.Status, StaleAfter: cfg.EffectiveStaleAfter()})
	}
	return p, nil
}

// FindOwners makes the configured mappings.
func (p *Pipeline) FindOwners() { p.Owners = newOwners(p.program, p.cfg, p.Engine, p.Registry, p.log) }

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
	p.desk = lists.New(first, lists.Options{
		Local: files, Engine: p.Engine, Events: reloads{p.Events}, Usual: p.cfg.ReleaseTimeout, Logger: p.log, Tick: view.Tick,
	})
	p.Registry.MustRegister(p.desk)
}

// reloads implements lists.Events.
type reloads struct{ bus *events.Bus }

func (r reloads) Publish(text string, bad bool) {
	r.bus.Publish(events.Event{Kind: events.Reload, Text: text, Bad: bad})
}

// AddPages builds the last part. It gathers own metrics for the first time, so all parts with metrics must be
// registered before.
func (p *Pipeline) AddPages() {
	cfg := p.cfg
	o := exposition.Options{
		Hostname:             p.Hostname,
		HostnameLabel:        cfg.HostnameLabel,
		OldNamespace:         cfg.OldNamespace,
		ReplaceBlanksInModel: cfg.ReplaceBlanks,
		StaleAfter:           cfg.EffectiveStaleAfter(),
		Store:                p.store,
		Registerer:           p.Registry,
	}
	if p.Owners != nil { // a nil *Keeper in the interface would not be nil
		o.Owners = p.Owners.keeper
	}
	if own := cfg.OwnMetrics(); own != config.MetricsNone {
		p.self = selfmetrics.New(p.Registry, selfmetrics.Options{Lean: own == config.MetricsLean, Registerer: p.Registry, Logger: p.log})
		o.Self = p.self // as above
	}
	p.Renderer = exposition.New(p.Engine.Board(), o)
}

// Counts, Sync and Series call the page for extensions, which start before it exists.

// Counts returns the series that count events.
func (p *Pipeline) Counts() []exposition.Count { return p.Renderer.Counts() }

// Sync brings the page's layout up to date.
func (p *Pipeline) Sync(now time.Time) { p.Renderer.Sync(now) }

// Series returns how many series the page had at the last Sync.
func (p *Pipeline) Series() int { return p.Renderer.Series() }

// Stages lists the stages in the order of the data flow.
func (p *Pipeline) Stages() []Stage {
	out := []Stage{
		{Name: "sampler", Run: p.Engine.Run, Grace: samplerStop + 400*time.Millisecond},
		{Name: "rows", Run: p.Rows.Run, Grace: ShortGrace},
		{Name: "states", Run: func(ctx context.Context) error { return p.states.Run(ctx, p.Engine.Board(), p.Engine.Status) }, Grace: ShortGrace},
	}
	out = append(out, p.Owners.stages()...)
	out = append(out, Stage{Name: "renderer", Run: p.Renderer.Run, Grace: ShortGrace})
	if p.self != nil {
		out = append(out, Stage{Name: "own metrics", Run: p.self.Run, Grace: ShortGrace})
	}
	return out
}

// watches returns the stages that ask for a reload when a file of the list changes.
func (p *Pipeline) watches() (out []Stage) {
	for _, path := range p.files.Paths() {
		out = append(out, Stage{
			Name: "watch of " + path, Grace: ShortGrace,
			Run: func(ctx context.Context) error {
				seen := func() ([]byte, bool) { return p.files.Seen(path) }
				return config.Watch(ctx, path, seen, func() { p.desk.RequestReload("file change") })
			},
		})
	}
	return out
}

// Core returns the exporter for extensions.
func (p *Pipeline) Core() Core {
	c := Core{
		Config: p.cfg, Lookup: p.program.Lookup, Hostname: p.Hostname, Version: p.program.Build.Version,
		Board: p.Engine.Board(), Engine: p.Engine, States: p.states, Events: p.Events, Rows: p.Rows, Past: new(rows.Past),
		Verdicts: p.verdicts, Lists: p.desk, Page: p,
		NotReady: func() []string { return reasons(p.cfg, p.table, p.Engine.Status()) },
		Registry: p.Registry, Log: p.log,
	}
	if p.Owners != nil {
		c.Owners = p.Owners.keeper
	}
	return c
}

// Extend starts the extensions: their stages are in Extended, their paths in Routes.
func (p *Pipeline) Extend() error {
	c := p.Core()
	for _, e := range p.program.Extensions {
		stages, routes, err := e.Start(c)
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
	return view.Added(slices.DeleteFunc(slices.Clone(p.Engine.Board().Load().Sources), func(s *view.Source) bool { return s.Collector != collector }), dialect)
}
