package exporter

import (
	"context"
	"slices"
	"time"

	"warpgauge/pkg/server"
)

// DrainTimeout is how long requests in progress may take when the process ends.
const DrainTimeout = 2 * time.Second

// NewServer returns the HTTP server of the pipeline's pages, with the flags of the configuration.
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
