package main

import (
	"context"
	"time"

	"go.uber.org/zap"

	"warpgauge/extensions/remote"
	"warpgauge/pkg/lists"
)

// newDesk returns the desk of a pipeline.
func newDesk(first *lists.Parsed, p *pipeline, files *lists.Files, log *zap.Logger) *lists.Desk {
	return lists.New(first, lists.Options{Local: files, Engine: p.engine, Events: p.bus, Usual: p.cfg.ReleaseTimeout, Logger: log})
}

// newRemote returns what takes lists from a server.
func newRemote(ctx context.Context, a *app, p *pipeline, desk *lists.Desk, log *zap.Logger) (*remote.Remote, error) {
	return remote.New(ctx, remote.Options{
		Config: p.cfg, Version: a.build.Version, Hostname: p.hostname,
		Desk: desk, Engine: p.engine, Page: laterPage{p}, Registerer: p.registry, Logger: log,
	})
}

// laterPage is the page of a pipeline, which is built after the lists are there.
type laterPage struct{ p *pipeline }

func (l laterPage) Sync(now time.Time) { l.p.renderer.Sync(now) }
func (l laterPage) Series() int        { return l.p.renderer.Series() }
