// Package live is the extension that shows the node's current state: the JSON API (api) and the browser page (page).
// It reads the core's board, rows, events, verdicts and past. It changes one thing only: whether processes on devices are read.
package live

import (
	"time"

	"warpgauge/extensions/live/api"
	"warpgauge/extensions/live/page"
	"warpgauge/pkg/exporter"
	"warpgauge/pkg/server"
)

// Extension implements exporter.Extension.
type Extension struct{ Settings }

// New returns the extension with the defaults of its flags.
func New() *Extension { return &Extension{Settings{Page: PageFull}} }

var _ interface {
	exporter.Extension
	exporter.Commander
	exporter.ProcessViewer
} = (*Extension)(nil)

// ViewsProcesses implements exporter.ProcessViewer.
func (e *Extension) ViewsProcesses() bool { return e.Page == PageFull }

// Start implements exporter.Extension.
func (e *Extension) Start(c exporter.Core) ([]exporter.Stage, []exporter.Route, error) {
	served := e.Page != PageOff
	routes := server.Page(page.Handler(page.Options{Version: c.Version, Live: served, Pprof: c.Config.Web.Pprof}))
	if !served {
		return nil, routes, nil
	}
	c.Past.Wanted = true
	o := optionsOf(&c)
	o.Events.Subscribe(c.Events)
	o.Download, o.Events.People = e.Page == PageFull, e.Page == PageFull
	if e.Page == PageFull {
		o.People = newPeople(&c)
	}
	answers := api.New(o)
	stages := []exporter.Stage{{Name: "events", Run: o.Events.Run}}
	return stages, append(routes, exporter.Route{Pattern: api.Prefix, Handler: answers, Labels: answers.Paths(), Close: answers.Close}), nil
}

// optionsOf returns the API's sources in the core, without names.
func optionsOf(c *exporter.Core) api.Options {
	return api.Options{
		Hostname: c.Hostname, Version: c.Version, Board: c.Engine.Board(), Node: c.Engine, States: c.States, Verdicts: c.Verdicts, NotReady: c.NotReady,
		Lists: c.Lists, Page: c.Page, Events: api.NewLog(), Past: c.Past, StaleAfter: c.Config.EffectiveStaleAfter(), Now: time.Now, Logger: c.Log,
	}
}
