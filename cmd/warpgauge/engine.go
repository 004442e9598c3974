package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"warpgauge/pkg/arbiter"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
	"warpgauge/pkg/isolation"
	"warpgauge/pkg/sampler"
	"warpgauge/pkg/view"
)

// engine is everything that samples: a supervisor for each collector that has a
// process of its own, and one sampler for those that live in this process. They
// look alike, and publish on one board in the order of the table.
type engine struct {
	parts   []sampling
	asides  []aside // what is known of processes; see processes.go
	board   *view.Board
	speaker *arbiter.Arbiter // between DCGM and NVML; nil where not both are there
	echo    *echo            // of what an isolated DCGM logs; nil where nobody asked for it

	processes *view.Board // of asides; nil where there are none
}

// sampling is a sampler.Sampler or an isolation.Supervisor.
type sampling interface {
	Run(context.Context) error
	Reload(context.Context, field.List) error
	Status() []sampler.CollectorStatus
	Release(ctx context.Context, name string) error
	Resume(name string) error
	Standby(ctx context.Context, name string, rest bool) error
}

var (
	_ sampling = (*sampler.Sampler)(nil)
	_ sampling = (*isolation.Supervisor)(nil)
	_ sampling = (*engine)(nil)
)

func (a *app) newEngine(cfg *config.Config, all []enabled, list field.List, reg prometheus.Registerer, log *zap.Logger) *engine {
	var merger view.Merger
	e := &engine{board: merger.Board()}
	places := e.places(cfg, all, &merger, reg, log)
	var here []collector.Factory
	var hereNames []string
	start := time.Now()
	for _, c := range all {
		name := c.factory().Name()
		if !c.isolated {
			here, hereNames = append(here, c.factory), append(hereNames, name)
			continue
		}
		e.parts = append(e.parts, isolation.New(list, isolation.Options{
			Name: name, Build: a.build.text(), Start: start,
			Command:        a.childCommand(name),
			Publish:        places[name],
			Interval:       cfg.Interval,
			SlowInterval:   cfg.SlowInterval,
			Deadline:       cfg.SampleDeadline,
			RescanInterval: cfg.RescanInterval,
			StopTimeout:    samplerStop,
			MemoryLimit:    cfg.MemoryLimit,
			RestartMax:     cfg.RestartMax,
			FreshFor:       cfg.EffectiveStaleAfter(),
			Stderr:         e.stderr(cfg, name, a.err),
			Logger:         log,
			Registerer:     reg,
		}))
	}
	if len(here) > 0 || len(all) == 0 {
		e.parts = append(e.parts, sampler.New(here, list, sampler.Options{
			Interval:       cfg.Interval,
			SlowInterval:   cfg.SlowInterval,
			Deadline:       cfg.SampleDeadline,
			RescanInterval: cfg.RescanInterval,
			StopTimeout:    samplerStop,
			Logger:         log,
			Registerer:     reg,
			OnPublish:      places.of(hereNames),
		}))
	}
	a.addAsides(e, cfg, all, reg, log)
	return e
}

// Board is where readers find the sources of all collectors.
func (e *engine) Board() *view.Board { return e.board }

// stderr is where the lines go that a child writes to its standard error; nil
// where nobody wants to see them.
func (e *engine) stderr(cfg *config.Config, name string, to io.Writer) func(string) {
	if name != nameDCGM || !cfg.HostEngine.Log {
		return nil
	}
	e.echo = newEcho(to)
	return e.echo.line
}

// Run runs all parts until ctx ends.
func (e *engine) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	if e.speaker != nil {
		wg.Go(func() { _ = e.speaker.Run(ctx) }) // it has no error to tell
	}
	if e.echo != nil {
		go e.echo.run(ctx) // not waited for: who does not read our standard error must not keep us from ending
	}
	return each(e.all(), func(s sampling) error { return s.Run(ctx) })
}

// all are the parts and what is beside them.
func (e *engine) all() []sampling {
	out := slices.Clone(e.parts)
	for _, s := range e.asides {
		out = append(out, s)
	}
	return out
}

// Reload gives all parts the new list at once.
func (e *engine) Reload(ctx context.Context, list field.List) error {
	return each(e.parts, func(s sampling) error { return s.Reload(ctx, list) })
}

func each(parts []sampling, f func(sampling) error) error {
	errs := make([]error, len(parts))
	var wg sync.WaitGroup
	for i, s := range parts {
		wg.Go(func() { errs[i] = f(s) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Release lets the collector of that name go, or all where it is empty, with what is
// known of processes, and returns when nothing of it is held any more.
func (e *engine) Release(ctx context.Context, name string) error {
	if e.speaker != nil {
		defer e.speaker.Release() // nothing of it may stay on the page
	}
	return each(e.named(name).all(), func(s sampling) error { return s.Release(ctx, name) })
}

// Resume opens it again.
func (e *engine) Resume(name string) error {
	return each(e.named(name).all(), func(s sampling) error { return s.Resume(name) })
}

// Standby lets the collector of that name rest while another serves its devices.
func (e *engine) Standby(ctx context.Context, name string, rest bool) error {
	return each(e.named(name).parts, func(s sampling) error { return s.Standby(ctx, name, rest) })
}

// named is the engine with the part alone that has the collector of that name, and
// what is beside it.
func (e *engine) named(name string) *engine {
	if name == "" {
		return e
	}
	has := func(s sampling) bool {
		return slices.ContainsFunc(s.Status(), func(c sampler.CollectorStatus) bool { return c.Name == name })
	}
	out := &engine{asides: asidesOf(e.asides, name)}
	if i := slices.IndexFunc(e.parts, has); i >= 0 {
		out.parts = e.parts[i : i+1]
	}
	return out
}

// Status tells the state of every collector, in order of priority.
func (e *engine) Status() (out []sampler.CollectorStatus) {
	for _, s := range e.parts {
		out = append(out, s.Status()...)
	}
	return out
}
