package exporter

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
	"warpgauge/pkg/session"
	"warpgauge/pkg/supervisor"
	"warpgauge/pkg/view"
)

// Engine samples: it has a supervisor for each collector, and the failover between the two that read the same
// GPUs. All publish on one board in the order of the table.
type Engine struct {
	collectors []*supervisor.Supervisor
	readers    []processReader // of processes on devices
	table      []Vendor
	board      *view.Board
	interval   func(field.Reading) time.Duration
	failover   *supervisor.Failover                          // between DCGM and NVML; nil unless both are wanted
	processes  *view.Board                                   // of the process readers; nil if there are none
	listed     func(name string, list field.List) field.List // a collector's list, with the readings of extensions
	takenOver  func(text string)                             // receives failovers; set before Run
	viewers    atomic.Int32                                  // of processes
}

// processReader reads the processes on a collector's devices. It is released and resumed with that collector.
// Users do not see it as a collector, because its devices are the collector's. It is on standby while no
// client views the processes, unless they supply values of pods.
type processReader struct {
	*supervisor.Supervisor
	of string // the collector
}

// NewEngine returns an engine of these collectors. It registers their metrics with reg.
func (a *Program) NewEngine(cfg *config.Config, all []Vendor, list field.List, reg prometheus.Registerer, log *zap.Logger) *Engine {
	var page, processes view.Merger
	e := &Engine{board: page.Board(), table: all, interval: sessionOptions(cfg, "", log).IntervalOf, takenOver: func(string) {}}
	start := time.Now()
	e.listed = func(name string, list field.List) field.List {
		if list.Dialect != nil && slices.ContainsFunc(all, func(v Vendor) bool {
			return v.Name == name && v.Maker != nil && v.Maker != list.Dialect.Vendor
		}) {
			list.Dialect = nil // the collector has none of these devices
		}
		return a.extend(cfg, list)
	}
	pages := e.pages(cfg, all, &page, reg, log)
	add := func(v *Vendor, name string, open collector.Factory, w supervisor.Wanted, page supervisor.Page) *supervisor.Supervisor {
		o := supervisor.Options{
			Name: name, Open: open, Page: page, Present: v.Present,
			Session:     sessionOptions(cfg, name, log),
			Hidden:      isProcesses(name),
			StopTimeout: samplerStop,
			MemoryLimit: cfg.MemoryLimit,
			RestartMax:  cfg.RestartMax,
			FreshFor:    cfg.EffectiveStaleAfter(),
			Logger:      log,
		}
		if v.Isolated {
			// With the exporter's own flags the child has the same configuration.
			o.Command = slices.Concat([]string{"warpgauge", "child"}, a.Flags.Arguments(), []string{name, strconv.FormatInt(start.UnixNano(), 10)})
			o.Environment = v.Environment
			if v.Echo && name == v.Name {
				o.Output = a.Log.line
			}
		}
		return supervisor.New(w, o)
	}
	for _, v := range all {
		s := add(&v, v.Name, v.Open, supervisor.Wanted{List: e.listed(v.Name, list)}, pages[v.Name])
		reg.MustRegister(s)
		e.collectors = append(e.collectors, s)
		if v.Processes != nil {
			e.processes = processes.Board()
			always := cfg.Kubernetes.ProcessValuesWanted()
			s := add(&v, v.Processes().Name(), v.Processes, supervisor.Wanted{Standby: !always}, processes.Part())
			if always { // else viewers read them now and then, so nothing needs watching
				reg.MustRegister(s)
			}
			e.readers = append(e.readers, processReader{s, v.Name})
		}
	}
	return e
}

// Processes are read once a second at any page interval, because their values are shares of the time since
// the previous reading. Readers only use the newest row, and rows are wide.
const (
	processInterval = time.Second
	processRingSpan = time.Second
)

func isProcesses(name string) bool { return strings.HasSuffix(name, "-processes") }

// sessionOptions returns the options of a collector's sessions, in this process or in a child.
func sessionOptions(cfg *config.Config, name string, log *zap.Logger) session.Options {
	o := session.Options{
		Interval:       cfg.Interval,
		SlowInterval:   cfg.SlowInterval,
		Deadline:       cfg.SampleDeadline,
		RescanInterval: cfg.RescanInterval,
		Select:         session.Selection{GPUs: cfg.GPUs, Switches: cfg.Switches, CPUs: cfg.CPUs},
		Logger:         log.Named("session").With(zap.String("collector", name)),
	}
	if isProcesses(name) {
		o.Interval, o.RingSpan = processInterval, processRingSpan
	}
	return o
}

// failoverNode is the part of the board that a collector and its fallback share.
type failoverNode struct {
	*view.Part
	e        *Engine
	fallback string
}

func (n *failoverNode) Standby(rest bool)     { n.e.Standby(n.fallback, rest) }
func (n *failoverNode) TakenOver(text string) { n.e.takenOver(text) }

// pages returns a publisher of sources for each collector. A collector and its fallback share one part of the
// board, which a failover fills.
func (e *Engine) pages(cfg *config.Config, all []Vendor, page *view.Merger, reg prometheus.Registerer, log *zap.Logger) map[string]supervisor.Page {
	out := map[string]supervisor.Page{}
	for _, v := range all {
		out[v.Name] = nil
	}
	for _, v := range all {
		if _, wanted := out[v.Fallback]; !wanted {
			continue
		}
		e.failover = supervisor.NewFailover(supervisor.FailoverOptions{
			Node:    &failoverNode{page.Part(), e, v.Fallback},
			Primary: v.Name, Secondary: v.Fallback,
			Patience: patience(cfg), StaleAfter: cfg.EffectiveStaleAfter(), Logger: log,
		})
		reg.MustRegister(e.failover.Metrics()...)
		out[v.Name], out[v.Fallback] = e.failover.Ends()
	}
	for _, v := range all {
		if out[v.Name] == nil {
			out[v.Name] = page.Part()
		}
	}
	return out
}

// patience is how long DCGM's GPUs may have no new values, normally up to two seconds, before NVML serves them.
func patience(cfg *config.Config) time.Duration {
	return min(max(3750*time.Millisecond, 5*cfg.Interval/2), cfg.EffectiveStaleAfter()*3/4)
}

// Board returns the board with the sources of all collectors.
func (e *Engine) Board() *view.Board { return e.board }

// Vendor returns the vendor of a collector's devices; nil if unknown or simulated.
func (e *Engine) Vendor(collector string) *field.Vendor {
	for _, v := range e.table {
		if v.Name == collector {
			return v.Maker
		}
	}
	return nil
}

// Simulated reports whether all devices are simulated.
func (e *Engine) Simulated() bool {
	return !slices.ContainsFunc(e.table, func(v Vendor) bool { return !v.Simulated })
}

// Interval returns the sampling interval of a reading.
func (e *Engine) Interval(r field.Reading) time.Duration { return e.interval(r) }

// Processes returns the board with the processes on each device, or nil if none are read. Package collector
// describes its rows.
func (e *Engine) Processes() *view.Board { return e.processes }

// Run samples until ctx ends.
func (e *Engine) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	if e.failover != nil {
		wg.Go(func() { _ = e.failover.Run(ctx) }) // it returns no error
	}
	err := each(e.all(""), func(s *supervisor.Supervisor) error { return s.Run(ctx) })
	<-ctx.Done() // also without any collector
	return err
}

// all returns the supervisors of a collector and of its processes, or all supervisors if the name is empty.
func (e *Engine) all(name string) (out []*supervisor.Supervisor) {
	for _, s := range e.collectors {
		if name == "" || s.Name() == name {
			out = append(out, s)
		}
	}
	for _, s := range e.readers {
		if name == "" || s.of == name {
			out = append(out, s.Supervisor)
		}
	}
	return out
}

func each(all []*supervisor.Supervisor, f func(*supervisor.Supervisor) error) error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, s := range all {
		wg.Go(func() { errs[i] = f(s) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Reload gives all collectors the new list at once.
func (e *Engine) Reload(ctx context.Context, list field.List) error {
	return each(e.collectors, func(s *supervisor.Supervisor) error {
		return s.Want(ctx, func(w *supervisor.Wanted) { w.List = e.listed(s.Name(), list) })
	})
}

// Serves reports whether a collector reads devices with the list of the last Reload.
func (e *Engine) Serves() bool {
	return slices.ContainsFunc(e.collectors, (*supervisor.Supervisor).Serves)
}

// Release releases a collector and its process reader, or all if the name is empty. It returns when they hold
// no devices any more.
func (e *Engine) Release(ctx context.Context, name string) error {
	if e.failover != nil {
		defer e.failover.Withdraw() // its values must leave the page
	}
	return each(e.all(name), func(s *supervisor.Supervisor) error {
		return s.Want(ctx, func(w *supervisor.Wanted) { w.Released = true })
	})
}

// Resume ends a release. It does not wait.
func (e *Engine) Resume(name string) {
	for _, s := range e.all(name) {
		s.Change(func(w *supervisor.Wanted) { w.Released = false })
	}
}

// Standby sets whether another collector serves the devices of this one. It does not wait: the channel receives the result.
func (e *Engine) Standby(name string, rest bool) <-chan error {
	for _, s := range e.collectors {
		if s.Name() == name {
			return s.Change(func(w *supervisor.Wanted) { w.Standby = rest })
		}
	}
	return nil
}

// ReadProcesses starts the process readers that are not always needed, or stops them after as many calls with false as with true.
func (e *Engine) ReadProcesses(wanted bool) {
	n := int32(-1)
	if wanted {
		n = 1
	}
	unwanted := e.viewers.Add(n) <= 0
	for _, s := range e.readers {
		s.Change(func(w *supervisor.Wanted) { w.Standby = unwanted })
	}
}

// Status reports the state of every collector, in order of priority.
func (e *Engine) Status() []session.CollectorStatus {
	return ask(e.collectors, (*supervisor.Supervisor).Status)
}

// Names returns the names of the collectors, in order of priority.
func (e *Engine) Names() []string { return ask(e.collectors, (*supervisor.Supervisor).Name) }

// Costs returns the library costs of each collector's session.
func (e *Engine) Costs() []session.Costs { return ask(e.collectors, (*supervisor.Supervisor).Costs) }

func ask[T any](all []*supervisor.Supervisor, f func(*supervisor.Supervisor) T) (out []T) {
	for _, s := range all {
		out = append(out, f(s))
	}
	return out
}
