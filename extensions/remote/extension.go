package remote

import (
	"context"
	"path/filepath"

	"warpgauge/pkg/config"
	"warpgauge/pkg/exporter"
	"warpgauge/pkg/field"
	"warpgauge/pkg/lists"
	"warpgauge/pkg/view"
)

// Extension implements exporter.Extension.
type Extension struct{ Settings }

// NewExtension returns the extension with the defaults of its flags.
func NewExtension() *Extension { return &Extension{Settings: defaults()} }

var _ exporter.Guard = (*Extension)(nil)

// Start implements exporter.Extension. It serves the list that was saved on disk.
func (e *Extension) Start(c exporter.Core) ([]exporter.Stage, []exporter.Route, error) {
	if !e.Wanted() {
		return nil, nil, nil
	}
	r, err := New(context.Background(), Options{
		Settings: &e.Settings, Config: c.Config, Version: c.Version, Hostname: c.Hostname,
		Desk: c.Lists, Engine: c.Engine, Page: c.Page, Registerer: c.Registry, Logger: c.Log,
	})
	if err != nil {
		return nil, nil, err
	}
	return []exporter.Stage{{Name: "lists of " + r.origin, Run: r.Run}}, nil, nil
}

// ParseGuarded implements exporter.Guard for the command check.
func (e *Extension) ParseGuarded(in *config.Content, files *lists.Files) (p *lists.Parsed, refused func(*view.View) ([]field.Problem, error)) {
	guard, suffix := Guard{e.Limits, e.Allow}, filepath.Ext(in.Name)
	p = guard.Parse(&lists.Offer{Origin: in.Name, Content: in.CSV, YAML: suffix == ".yaml" || suffix == ".yml"}, files)
	return p, func(v *view.View) (out []field.Problem, err error) {
		all, err := guard.Examine(p, v)
		for _, r := range all {
			out = append(out, field.Problem{File: in.Name, Line: r.Line, Severity: field.Error, Message: r.Text})
		}
		return out, err
	}
}
