package main

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
	"warpgauge/pkg/isolation"
	"warpgauge/pkg/sampler"
	"warpgauge/pkg/view"
)

// Processes are looked at once a second, whatever the page's interval: what is made
// of them are shares of the time since the look before. Nobody reads any row but
// the newest, and rows are wide.
const (
	processInterval = time.Second
	processRingSpan = time.Second
)

// aside is what tells the processes on a collector's devices. It is held and let go
// with that collector, and is no collector to people: its devices are the other's.
type aside struct {
	sampling
	of string // the collector
}

// Release lets it go, whatever the name by which its collector was chosen.
func (a aside) Release(ctx context.Context, _ string) error { return a.sampling.Release(ctx, "") }

// Resume ends that.
func (a aside) Resume(string) error { return a.sampling.Resume("") }

// asidesOf are those of a collector, or all.
func asidesOf(all []aside, name string) (out []aside) {
	for _, s := range all {
		if name == "" || s.of == name {
			out = append(out, s)
		}
	}
	return out
}

// addAsides adds what the configuration wants to know of processes, each in a
// place of its own on a board of its own: nothing of it reaches the page, and no
// list of fields concerns it.
func (a *app) addAsides(e *engine, cfg *config.Config, all []enabled, reg prometheus.Registerer, log *zap.Logger) {
	if !slices.ContainsFunc(all, func(c enabled) bool { return c.processes != nil }) {
		return
	}
	var merger view.Merger
	e.processes = merger.Board()
	start := time.Now()
	for _, c := range all {
		if c.processes == nil {
			continue
		}
		publish := merger.Part().Publish
		s := aside{of: c.factory().Name()}
		if c.isolated {
			s.sampling = a.isolatedProcesses(cfg, c.processes().Name(), start, publish, reg, log)
		} else {
			s.sampling = processesHere(cfg, c.processes, publish, reg, log)
		}
		e.asides = append(e.asides, s)
	}
}

// Processes is where readers find who is on which device; nil where nobody looks.
// What its rows are is in package collector/processes.
func (e *engine) Processes() *view.Board { return e.processes }

func (a *app) isolatedProcesses(cfg *config.Config, name string, start time.Time, publish func(*view.View), reg prometheus.Registerer, log *zap.Logger) *isolation.Supervisor {
	return isolation.New(field.List{}, isolation.Options{
		Name: name, Build: a.build.text(), Start: start,
		Command:        a.childCommand(name),
		Publish:        publish,
		Interval:       processInterval,
		Deadline:       cfg.SampleDeadline,
		RescanInterval: cfg.RescanInterval,
		StopTimeout:    samplerStop,
		RingSpan:       processRingSpan,
		MemoryLimit:    cfg.MemoryLimit,
		RestartMax:     cfg.RestartMax,
		FreshFor:       cfg.EffectiveStaleAfter(),
		Aside:          true,
		Logger:         log,
		Registerer:     reg,
	})
}

func processesHere(cfg *config.Config, f collector.Factory, publish func(*view.View), reg prometheus.Registerer, log *zap.Logger) *sampler.Sampler {
	o := sampler.Options{
		Interval:       processInterval,
		Deadline:       cfg.SampleDeadline,
		RescanInterval: cfg.RescanInterval,
		StopTimeout:    samplerStop,
		RingSpan:       processRingSpan,
		Aside:          true,
		Logger:         log,
		OnPublish:      publish,
	}
	if reg != nil { // a nil Registerer in the other would not be nil
		o.Registerer = besides{reg}
	}
	return sampler.New([]collector.Factory{f}, field.List{}, o)
}

// besides registers collectors whose families others have registered, too. Their
// series differ in the label collector.
type besides struct{ prometheus.Registerer }

// MustRegister registers them without their descriptions, which are there already.
func (b besides) MustRegister(all ...prometheus.Collector) {
	for _, c := range all {
		b.Registerer.MustRegister(undescribed{c})
	}
}

// undescribed is a collector that the registry does not check.
type undescribed struct{ prometheus.Collector }

// Describe describes nothing.
func (undescribed) Describe(chan<- *prometheus.Desc) {}
