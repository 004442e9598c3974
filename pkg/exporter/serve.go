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
	cfg := p.Config
	return server.New(p.Renderer, server.Options{
		Address:              cfg.Web.Address,
		SystemdSocket:        cfg.Web.SystemdSocket,
		WebConfigFile:        cfg.Web.ConfigFile,
		Store:                *p.Kept,
		ReadTimeout:          cfg.Web.ReadTimeout,
		WriteTimeout:         cfg.Web.WriteTimeout,
		DrainTimeout:         DrainTimeout,
		MaxConcurrentScrapes: cfg.Web.MaxConcurrentScrapes,
		Pprof:                cfg.Web.Pprof,
		Desk:                 p.Lists,
		Reload:               cfg.Web.Reload,
		Release:              cfg.Web.Release,
		Routes:               p.Routes,
		Logger:               p.Log,
		Registerer:           p.Registry,
		Status: func() server.Status {
			st := server.Status{Available: true, Reloading: p.Lists.Changing(), NotReady: p.NotReady()}
			if cfg.Web.HealthRequireGPUs && !slices.ContainsFunc(p.Engine.Status(), hasGPU) {
				st.Unhealthy = "no GPU is up"
			}
			return st
		},
	})
}
