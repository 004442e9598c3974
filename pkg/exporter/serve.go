package exporter

import (
	"slices"
	"time"

	"warpgauge/pkg/server"
)

// DrainTimeout is how long running requests may take when the process ends.
const DrainTimeout = 2 * time.Second

// NewServer returns the HTTP server of the pipeline's pages, with the flags of the configuration.
func (p *Pipeline) NewServer() *server.Server {
	cfg, desk := p.cfg, p.desk
	return server.New(p.Renderer, server.Options{
		Address:              cfg.Web.Address,
		SystemdSocket:        cfg.Web.SystemdSocket,
		WebConfigFile:        cfg.Web.ConfigFile,
		ReadTimeout:          cfg.Web.ReadTimeout,
		WriteTimeout:         cfg.Web.WriteTimeout,
		DrainTimeout:         DrainTimeout,
		MaxConcurrentScrapes: cfg.Web.MaxConcurrentScrapes,
		Pprof:                cfg.Web.Pprof,
		Desk:                 desk,
		Reload:               cfg.Web.Reload,
		Release:              cfg.Web.Release,
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
	})
}
