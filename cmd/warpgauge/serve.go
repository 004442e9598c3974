package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"go.uber.org/zap"

	"warpgauge/extensions/live/api"
	"warpgauge/extensions/live/page"
	"warpgauge/extensions/remote"
	"warpgauge/pkg/config"
	"warpgauge/pkg/exporter"
	"warpgauge/pkg/lists"
	"warpgauge/pkg/server"
	"warpgauge/pkg/verdict"
)

// drainTimeout is what requests under way get when the process ends.
const drainTimeout = 2 * time.Second

// errForced says that a second signal came while the process was ending.
var errForced = errors.New("ended at once by a second signal")

// serve runs the exporter until a signal or the end of ctx. Its error is
// something that a person must put right.
func (a *app) serve(ctx context.Context) error {
	cfg, err := a.config()
	if err != nil {
		return err
	}
	// Before the CSV is read, so that a SIGHUP from now on is not lost; without
	// this it would end the process.
	signals := subscribe()
	defer signals.release()

	level := zap.NewAtomicLevelAt(cfg.LogLevel())
	log := newLoggerAt(cfg, a.log, level)
	log.Info("starting", zap.String("version", a.build.Version), zap.String("revision", a.build.Revision))
	if a.build.Pure {
		log.Warn("built without cgo: NVIDIA's libraries and ROCm SMI cannot be read; build with a C compiler, or take a package or the image")
	}
	for _, n := range append(a.flags.Notices(), a.flags.UnknownVariables(a.environ)...) {
		log.Warn(n.Text, zap.Stringer("source", n.Source))
	}
	for _, word := range a.unknown {
		log.Warn("flag is unknown and has no effect", zap.String("flag", word))
	}
	stages, err := a.stages(ctx, cfg, log, level, signals)
	if err != nil {
		return err
	}
	return signals.guard(ctx, log, func(ctx context.Context) error {
		err := runStages(ctx, log, stages...)
		log.Info("stopped")
		return err
	})
}

// stages builds the exporter and opens its port, so that what a person must put
// right shows before anything runs.
func (a *app) stages(ctx context.Context, cfg *config.Config, log *zap.Logger, level zap.AtomicLevel, signals *signals) ([]stage, error) {
	files := newFiles(a, cfg, "", &level)
	first, err := files.First(ctx, log)
	if err != nil {
		return nil, err
	}
	all, err := withProcesses(cfg, log, cfg.Kubernetes.ProcessValuesWanted() || cfg.Web.Page == config.PageFull)
	if err != nil {
		return nil, err
	}
	p, err := newPipeline(a, cfg, all, first.Fields, log)
	if err != nil {
		return nil, err
	}
	desk := newDesk(first, p, files, log)
	var fromServer *remote.Remote
	if cfg.Remote.Wanted() {
		if fromServer, err = newRemote(ctx, a, p, desk, log); err != nil {
			return nil, err
		}
	}
	p.registry.MustRegister(a.log.metric(), desk)
	p.addPages()

	own, err := a.startExtensions(cfg, p, log)
	if err != nil {
		return nil, err
	}
	srv := a.newServer(cfg, all, p, desk, log)
	if err := srv.Listen(ctx); err != nil {
		return nil, err
	}
	stages := append(append(p.stages(), own...), stage{
		name: "lists", grace: shortGrace,
		run: func(ctx context.Context) error {
			return desk.Run(ctx, lists.Signals{Reload: signals.hangup, Release: signals.letGo, Resume: signals.resume})
		},
	})
	if p.events != nil {
		stages = append(stages, stage{name: "events", run: p.events.Run, grace: shortGrace}, stage{
			name: "states", grace: shortGrace,
			run: func(ctx context.Context) error { return p.states.Run(ctx, p.engine.Status) },
		})
	}
	if p.recorder != nil {
		stages = append(stages, stage{name: "recorder", run: p.recorder.Run, grace: shortGrace})
	}
	if cfg.Dump.Enabled {
		d := &dumper{o: cfg.Dump, version: a.build.String(), board: p.engine.Board(), status: p.engine.Status, owners: p.owners, now: time.Now, log: log.Named("dump")}
		stages = append(stages, stage{name: "dumps", run: d.run, grace: shortGrace})
	}
	if cfg.Kubernetes.AnnotatePod {
		s, err := annotationStage(a, desk, log)
		if err != nil {
			return nil, err
		}
		stages = append(stages, s)
	}
	if fromServer != nil {
		stages = append(stages, stage{name: fromServer.Name(), run: fromServer.Run, grace: shortGrace})
	}
	told, err := consumers(a, cfg, all, p, log)
	if err != nil {
		return nil, err
	}
	stages = append(stages, told...)
	for _, path := range files.Paths() {
		stages = append(stages, stage{
			name: "watch of " + path, grace: shortGrace,
			run: func(ctx context.Context) error {
				seen := func() ([]byte, bool) { return files.Seen(path) }
				return config.Watch(ctx, path, log.Named("watch"), seen, func() { desk.RequestReload("file change") })
			},
		})
	}
	return append(stages, stage{name: "HTTP server", run: srv.Run, grace: drainTimeout + 300*time.Millisecond}, notifier(log)), nil
}

// startExtensions returns what extensions run, and adds what HTTP serves of them to p.
func (a *app) startExtensions(cfg *config.Config, p *pipeline, log *zap.Logger) (out []stage, err error) {
	core := exporter.Core{
		Config: cfg, Lookup: a.lookup, Hostname: p.hostname, Version: a.build.Version, Board: p.engine.Board(),
		Verdicts: &verdict.Board{}, Status: p.engine.Status, Registry: p.registry, Log: log,
	}
	if p.health != nil {
		core.Verdicts = p.health.Board()
	}
	for _, e := range a.extensions {
		stages, more, err := e.Start(core)
		if err != nil {
			return nil, err
		}
		for _, s := range stages {
			out = append(out, stage{name: s.Name, run: s.Run, grace: s.Grace})
		}
		p.routes = append(p.routes, more...)
	}
	return out, nil
}

func (a *app) newServer(cfg *config.Config, table []vendor, p *pipeline, desk *lists.Desk, log *zap.Logger) *server.Server {
	o := server.Options{
		Addresses:            []string{cfg.Web.Address},
		SystemdSocket:        cfg.Web.SystemdSocket,
		WebConfigFile:        cfg.Web.ConfigFile,
		ReadTimeout:          cfg.Web.ReadTimeout,
		WriteTimeout:         cfg.Web.WriteTimeout,
		IdleTimeout:          cfg.Web.IdleTimeout,
		DrainTimeout:         drainTimeout,
		MaxConnections:       cfg.Web.MaxConnections,
		MaxConcurrentScrapes: cfg.Web.MaxConcurrentScrapes,
		Pprof:                cfg.Web.Pprof,
		Logger:               log,
		Registerer:           p.registry,
		Status: func() server.Status {
			all := p.engine.Status()
			st := server.Status{Available: true, Reloading: desk.Changing(), NotReady: reasons(cfg, table, all)}
			if cfg.Web.HealthRequireGPUs && !slices.ContainsFunc(all, hasGPU) {
				st.Unhealthy = "no GPU is up"
			}
			return st
		},
	}
	o.Routes = append(server.Page(page.Handler(page.Options{Version: a.build.Version, Live: p.events != nil, Pprof: cfg.Web.Pprof})), p.routes...)
	if p.events != nil {
		if answers := newAPI(a.build.Version, cfg, table, p, desk, log); cfg.Web.Page != config.PageOff {
			o.Routes = append(o.Routes, server.Route{Pattern: api.Prefix, Handler: answers, Labels: answers.Paths(), Close: answers.Close})
		}
	}
	record := server.Command{Verb: "record", Done: "recording", Disabled: "recording over HTTP is not enabled"}
	if cfg.Recorder.Endpoint && p.recorder != nil {
		record.Run = p.recorder.Record
	}
	o.Routes = append(o.Routes, server.Route{Pattern: "/-/record", Command: &record})
	if cfg.Web.Reload {
		o.Reload = func(ctx context.Context) error { return desk.Reload(ctx, "POST /-/reload") }
	}
	if cfg.Web.Release {
		o.Release = func(ctx context.Context, name string, limit time.Duration) error {
			return desk.Release(ctx, name, limit, "POST /-/release")
		}
		o.Resume = func(name string) error { return desk.Resume(name, "POST /-/resume") }
		o.PauseProfiling = func(ctx context.Context, limit time.Duration) error {
			return desk.PauseProfiling(ctx, limit, "POST /-/profiling/pause")
		}
		o.ResumeProfiling = func(ctx context.Context) error { return desk.ResumeProfiling(ctx, "POST /-/profiling/resume") }
	}
	return server.New(p.renderer, o)
}

// signals are the signals of the process, from subscribe to release.
type signals struct {
	hangup chan os.Signal // SIGHUP
	letGo  chan os.Signal // SIGUSR1
	resume chan os.Signal // SIGUSR2
	end    chan os.Signal // SIGINT, SIGTERM, SIGQUIT
	closed chan os.Signal // SIGPIPE, which is ignored: lines for a closed standard error are counted
}

func subscribe() *signals {
	s := &signals{
		hangup: make(chan os.Signal, 1), letGo: make(chan os.Signal, 1), resume: make(chan os.Signal, 1),
		end: make(chan os.Signal, 2), closed: make(chan os.Signal, 1),
	}
	signal.Notify(s.hangup, syscall.SIGHUP)
	signal.Notify(s.letGo, syscall.SIGUSR1)
	signal.Notify(s.resume, syscall.SIGUSR2)
	signal.Notify(s.end, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	signal.Notify(s.closed, syscall.SIGPIPE)
	return s
}

func (s *signals) release() {
	signal.Stop(s.hangup)
	signal.Stop(s.letGo)
	signal.Stop(s.resume)
	signal.Stop(s.end)
	// Not closed: the last lines of the log are yet to be written.
}

// sameSignal is how soon a second signal is taken for the first one again: to stop a
// process and its group at once sends two.
const sameSignal = 500 * time.Millisecond

// guard runs f and ends its context at the first signal. At the second it does
// not wait for f any longer.
func (s *signals) guard(ctx context.Context, log *zap.Logger, f func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	var ending time.Time // since when; zero: not
	for {
		select {
		case err := <-done:
			return err
		case got := <-s.end:
			switch {
			case ending.IsZero():
				ending = time.Now()
			case time.Since(ending) < sameSignal:
				continue
			default:
				return errForced
			}
			log.Info("stopping; a second signal ends at once", zap.Stringer("signal", got))
			cancel()
		}
	}
}
