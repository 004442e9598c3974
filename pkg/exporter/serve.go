package exporter

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/config"
	"warpgauge/pkg/lists"
	"warpgauge/pkg/server"
)

// DrainTimeout is how long requests in progress may take when the process ends.
const DrainTimeout = 2 * time.Second

// Serve runs the exporter until a signal or the end of ctx. Its error is
// something that a person must put right.
func (a *Program) Serve(ctx context.Context) error {
	cfg, err := a.Config()
	if err != nil {
		return err
	}
	// Before the CSV is read, so that a SIGHUP from now on is not lost; without
	// this it would end the process.
	signals := Subscribe()
	defer signals.Release()

	level := zap.NewAtomicLevelAt(cfg.LogLevel())
	log := newLoggerAt(cfg, a.Log, level)
	log.Info("starting", zap.String("version", a.Build.Version), zap.String("revision", a.Build.Revision))
	if a.Build.Pure {
		log.Warn("built without cgo: NVIDIA's libraries and ROCm SMI cannot be read; build with a C compiler, or take a package or the image")
	}
	for _, n := range append(a.Flags.Notices(), a.Flags.UnknownVariables(a.Environ)...) {
		log.Warn(n.Text, zap.Stringer("source", n.Source))
	}
	for _, word := range a.Unknown {
		log.Warn("flag is unknown and has no effect", zap.String("flag", word))
	}
	stages, err := a.stages(ctx, cfg, log, level, signals)
	if err != nil {
		return err
	}
	return signals.Guard(ctx, log, func(ctx context.Context) error {
		err := RunStages(ctx, log, stages...)
		log.Info("stopped")
		return err
	})
}

// Stages builds the exporter and opens its port, so that what a person must put
// right shows before anything runs.
func (a *Program) stages(ctx context.Context, cfg *config.Config, log *zap.Logger, level zap.AtomicLevel, signals *Signals) ([]Stage, error) {
	files := a.NewFiles(cfg, "", &level)
	first, err := files.First(ctx, log)
	if err != nil {
		return nil, err
	}
	all, err := a.WithProcesses(cfg, log, cfg.Kubernetes.ProcessValuesWanted() || a.viewsProcesses())
	if err != nil {
		return nil, err
	}
	p, err := a.NewPipeline(cfg, all, first.Fields, log)
	if err != nil {
		return nil, err
	}
	p.ServeLists(first, files)
	p.Registry.MustRegister(a.Log.Metric())
	if err := p.Extend(); err != nil {
		return nil, err
	}
	p.AddPages()

	srv := p.NewServer()
	if err := srv.Listen(ctx); err != nil {
		return nil, err
	}
	stages := append(p.Stages(), Stage{
		Name: "lists", Grace: ShortGrace,
		Run: func(ctx context.Context) error {
			return p.desk.Run(ctx, lists.Signals{Reload: signals.hangup, Release: signals.letGo, Resume: signals.resume})
		},
	})
	stages = append(stages, p.Extended...)
	if cfg.Dump.Enabled {
		d := &dumper{o: cfg.Dump, version: a.Build.String(), board: p.Engine.Board(), status: p.Engine.Status, owners: p.Owners, now: time.Now, log: log.Named("dump")}
		stages = append(stages, Stage{Name: "dumps", Run: d.run, Grace: ShortGrace})
	}
	if cfg.Kubernetes.AnnotatePod {
		s, err := AnnotationStage(a, p.desk, log)
		if err != nil {
			return nil, err
		}
		stages = append(stages, s)
	}
	stages = append(stages, p.watches()...)
	return append(stages, Stage{Name: "HTTP server", Run: srv.Run, Grace: DrainTimeout + 300*time.Millisecond}, notifier(log)), nil
}

func (p *Pipeline) NewServer() *server.Server {
	cfg, desk := p.cfg, p.desk
	o := server.Options{
		Addresses:            []string{cfg.Web.Address},
		SystemdSocket:        cfg.Web.SystemdSocket,
		WebConfigFile:        cfg.Web.ConfigFile,
		ReadTimeout:          cfg.Web.ReadTimeout,
		WriteTimeout:         cfg.Web.WriteTimeout,
		IdleTimeout:          cfg.Web.IdleTimeout,
		DrainTimeout:         DrainTimeout,
		MaxConnections:       cfg.Web.MaxConnections,
		MaxConcurrentScrapes: cfg.Web.MaxConcurrentScrapes,
		Pprof:                cfg.Web.Pprof,
		Routes:               p.Routes,
		Logger:               p.log,
		Registerer:           p.Registry,
		Status: func() server.Status {
			all := p.Engine.Status()
			st := server.Status{Available: true, Reloading: desk.Changing(), NotReady: reasons(cfg, p.table, all)}
			if cfg.Web.HealthRequireGPUs && !slices.ContainsFunc(all, hasGPU) {
				st.Unhealthy = "no GPU is up"
			}
			return st
		},
	}
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
	return server.New(p.Renderer, o)
}
