// Package extension is the extension that keeps the past: the samples of the last minutes (package history), and recordings
// of incidents (package recorder). The core and other extensions read both through rows.Past.
package extension

import (
	"go.uber.org/zap"

	"warpgauge/extensions/recorder"
	"warpgauge/extensions/recorder/history"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/exporter"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/server"
	"warpgauge/pkg/session"
)

// Extension implements exporter.Extension.
type Extension struct{ Settings }

// New returns the extension with the defaults of its flags.
func New() *Extension { return &Extension{defaults()} }

var _ exporter.Extension = (*Extension)(nil)

// Start implements exporter.Extension.
func (e *Extension) Start(c exporter.Core) ([]exporter.Stage, []exporter.Route, error) {
	record := &server.Command{Verb: "record", Done: "recording", Disabled: "recording over HTTP is not enabled"}
	routes := []exporter.Route{{Pattern: "/-/record", Command: record}}
	if e.Directory != "" && !e.Keeps() {
		c.Log.Warn("cannot record without a history", zap.String("directory", e.Directory))
	}
	if !e.Keeps() || e.Directory == "" && !c.Past.Wanted {
		return nil, routes, nil
	}
	past := history.New(history.Options{Rows: c.Rows, MaxAge: e.Age, MaxBytes: e.HistoryBytes, Registerer: c.Registry})
	c.Past.History, c.Past.MaxAge = past, e.Age
	stages := []exporter.Stage{{Name: "history", Run: past.Run}}
	if e.Directory == "" {
		return stages, routes, nil
	}
	names := exposition.Options{
		Hostname: c.Hostname, HostnameLabel: c.Config.HostnameLabel, OldNamespace: c.Config.OldNamespace, ReplaceBlanksInModel: c.Config.ReplaceBlanks,
	}
	if c.Owners != nil { // a nil *Keeper would make a non-nil interface
		names.Owners = c.Owners
	}
	rec := recorder.New(recorder.Options{
		Directory: e.Directory, Before: e.Before, After: e.After, Files: e.Files, Bytes: e.Bytes, Hostname: c.Hostname, Version: c.Version,
		Board: c.Board, History: past, Node: node{c}, Events: c.Events, Verdicts: c.Verdicts, Page: names, Registerer: c.Registry, Logger: c.Log,
	})
	if c.Past.Recordings = rec; e.Endpoint {
		record.Run = rec.Record
	}
	return append(stages, exporter.Stage{Name: "recorder", Run: rec.Run}), routes, nil
}

// node implements recorder.Node.
type node struct{ exporter.Core }

func (n node) Status() []session.CollectorStatus { return n.Engine.Status() }

// Users returns the users of a device.
func (n node) Users(d *collector.Device) (out []recorder.User) {
	if n.Owners != nil {
		for _, u := range n.Owners.Users(d) {
			out = append(out, recorder.User(u))
		}
	}
	return out
}
