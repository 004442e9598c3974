// Package live is the extension that shows the node's current state: the JSON API (api), the browser page (page),
// the history of the last minutes (history) and the flight recorder (recorder). It reads the core's board, rows,
// events and verdicts. It changes one thing only: whether processes on devices are read.
package live

import (
	"context"
	"time"

	"go.uber.org/zap"

	"warpgauge/extensions/live/api"
	"warpgauge/extensions/live/apiv1"
	"warpgauge/extensions/live/history"
	"warpgauge/extensions/live/page"
	"warpgauge/extensions/live/recorder"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/exporter"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/owner"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/server"
)

// Extension implements exporter.Extension.
type Extension struct{ Settings }

// New returns the extension with the defaults of its flags.
func New() *Extension { return &Extension{defaults()} }

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
	browser := page.Handler(page.Options{Version: c.Version, Live: served || e.Recorder.Directory != "", Pprof: c.Config.Web.Pprof})
	routes := server.Page(browser)
	record := &server.Command{Verb: "record", Done: "recording", Disabled: "recording over HTTP is not enabled"}
	routes = append(routes, exporter.Route{Pattern: "/-/record", Command: record})
	if !served && e.Recorder.Directory == "" {
		return nil, routes, nil // without an API nothing reads events
	}

	log, states := api.NewLog(time.Now), exporter.NewStates(c.Events, nil)
	log.Subscribe(c.Events)
	var stages []exporter.Stage
	add := func(name string, run func(context.Context) error) {
		stages = append(stages, exporter.Stage{Name: name, Run: run, Grace: exporter.ShortGrace})
	}
	o := api.Options{
		Hostname: c.Hostname, Version: c.Version, View: c.Engine.Board().Load, Status: c.Engine.Status,
		Health: c.Verdicts.Load, NotReady: c.NotReady, Lists: c.Lists, Counts: c.Page.Counts, Interval: c.Engine.Interval,
		Events: log, States: states, StaleAfter: c.Config.EffectiveStaleAfter(), Logger: c.Log,
	}
	var past *history.History
	if e.History.Wanted() {
		past = history.New(history.Options{Rows: c.Rows, MaxAge: e.History.Age, MaxBytes: e.History.Bytes, Registerer: c.Registry})
		o.History, o.HistoryAge = past, e.History.Age
		add("history", past.Run)
	}
	if c.Owners != nil && e.Page != PageAnonymous {
		o.Users = func(d *collector.Device) []apiv1.User { return users(c.Owners, d) }
	}
	if c.Engine.Processes() != nil && e.Page == PageFull {
		v := &viewedProcesses{owners: c.Owners, list: owner.NewProcesses(c.Engine.Processes(), func() {}, zap.NewNop()), engine: c.Engine}
		o.Processes = v.on
		if !c.Config.Kubernetes.ProcessValuesWanted() {
			o.Viewed = v.viewed
		}
	}
	add("events", log.Run)
	add("states", func(ctx context.Context) error { return states.Run(ctx, c.Engine.Status) })
	var answers *api.API
	switch r := &e.Recorder; {
	case r.Directory == "":
	case past == nil:
		c.Log.Warn("nothing is recorded, because there is no history", zap.String("directory", r.Directory))
	default:
		names := exposition.Options{
			Hostname: c.Hostname, HostnameLabel: c.Config.HostnameLabel, OldNamespace: c.Config.OldNamespace, ReplaceBlanksInModel: c.Config.ReplaceBlanks,
		}
		if c.Owners != nil && e.Page != PageAnonymous { // a nil *Keeper would make a non-nil interface
			names.Owners = c.Owners
		}
		c.Rows.Follow(&rows.Occurrences{})
		rec := recorder.New(recorder.Options{
			Directory: r.Directory, Before: r.Before, After: r.After, Files: r.Files, Bytes: r.Bytes,
			Hostname: c.Hostname, Version: c.Version, Board: c.Engine.Board(), History: past, Events: c.Events, Log: log,
			Node: func() *apiv1.Devices { return answers.Devices() }, Health: func() *apiv1.Health { return answers.Health() },
			Page: names, Registerer: c.Registry, Logger: c.Log,
		})
		if e.Page == PageFull {
			o.Recorder = rec
		}
		if r.Endpoint {
			record.Run = rec.Record
		}
		add("recorder", rec.Run)
	}
	answers = api.New(o)
	if served {
		routes = append(routes, exporter.Route{Pattern: api.Prefix, Handler: answers, Labels: answers.Paths(), Close: answers.Close})
	}
	return stages, routes, nil
}
