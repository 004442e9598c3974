package remote

import (
	"context"

	"warpgauge/pkg/exporter"
)

// Extension implements exporter.Extension.
type Extension struct {
	Settings
	remote *Remote
}

// Remote returns what Start has made; nil: no server is asked.
func (e *Extension) Remote() *Remote { return e.remote }

// NewExtension returns the extension with the defaults of its flags.
func NewExtension() *Extension { return &Extension{Settings: defaults()} }

var _ exporter.Extension = (*Extension)(nil)

// Start implements exporter.Extension. It puts the list that was kept on disk into service.
func (e *Extension) Start(c exporter.Core) ([]exporter.Stage, []exporter.Route, error) {
	if !e.Wanted() {
		return nil, nil, nil
	}
	r, err := New(context.Background(), e.Options(c))
	if err != nil {
		return nil, nil, err
	}
	e.remote = r
	return []exporter.Stage{{Name: r.Name(), Run: r.Run, Grace: exporter.ShortGrace}}, nil, nil
}

// Options returns the options of a Remote in an exporter.
func (e *Extension) Options(c exporter.Core) Options {
	return Options{
		Settings: &e.Settings, Config: c.Config, Version: c.Version, Hostname: c.Hostname,
		Desk: c.Lists, Engine: c.Engine, Page: c.Page, Registerer: c.Registry, Logger: c.Log,
	}
}
