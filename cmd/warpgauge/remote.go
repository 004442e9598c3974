package main

import (
	"context"
	"time"

	"go.uber.org/zap"

	"warpgauge/extensions/live/api"
	"warpgauge/extensions/remote"
	"warpgauge/pkg/lists"
)

// newDesk returns the desk of a pipeline.
func newDesk(first *lists.Parsed, p *pipeline, files *lists.Files, log *zap.Logger) *lists.Desk {
	o := lists.Options{Local: files, Engine: p.engine, Usual: p.cfg.ReleaseTimeout, Logger: log}
	if p.events != nil {
		o.Journal = listEvents{p.events}
	}
	return lists.New(first, o)
}

// listEvents records changes of the list as events.
type listEvents struct{ log *api.Log }

func (l listEvents) ListChanged(text string, bad bool) {
	l.log.Add(api.Event{Kind: api.KindReload, Text: text, Bad: bad})
}

// newRemote returns what takes lists from a server.
func newRemote(ctx context.Context, a *app, p *pipeline, desk *lists.Desk, files *lists.Files, log *zap.Logger) (*remote.Remote, error) {
	return remote.New(ctx, remote.Options{
		Config: p.cfg, Version: a.build.version, Hostname: p.hostname,
		Desk: desk, Parser: files, Engine: p.engine, Page: laterPage{p}, Registerer: p.registry, Logger: log,
	})
}

// laterPage is the page of a pipeline, which is built after the lists are there.
type laterPage struct{ p *pipeline }

func (l laterPage) Sync(now time.Time) { l.p.renderer.Sync(now) }
func (l laterPage) Series() int        { return l.p.renderer.Series() }
