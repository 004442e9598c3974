package exporter

import (
	"slices"

	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
	"warpgauge/pkg/view"
)

// Core returns what extensions use.
func (p *Pipeline) Core() Core {
	c := Core{
		Config: p.cfg, Lookup: p.program.Lookup, Hostname: p.Hostname, Version: p.program.Build.Version,
		Board: p.Engine.Board(), Engine: p.Engine, Events: p.Events, Rows: p.Rows, Verdicts: p.verdicts, Lists: p.desk, Page: p,
		NotReady: func() []string { return reasons(p.cfg, p.table, p.Engine.Status()) },
		Registry: p.Registry, Log: p.log,
	}
	if p.Owners != nil {
		c.Owners = p.Owners.keeper
	}
	return c
}

// Extend starts the extensions: their stages are in Extended, their paths in Routes.
func (p *Pipeline) Extend() error {
	c := p.Core()
	for _, e := range p.program.Extensions {
		stages, routes, err := e.Start(c)
		if err != nil {
			return err
		}
		p.Extended = append(p.Extended, stages...)
		p.Routes = append(p.Routes, routes...)
	}
	return nil
}

// viewsProcesses reports whether an extension shows the processes on devices.
func (a *Program) viewsProcesses() bool {
	return slices.ContainsFunc(a.Extensions, func(e Extension) bool {
		v, ok := e.(ProcessViewer)
		return ok && v.ViewsProcesses()
	})
}

// Hidden returns the names of the readings that a list lacks.
func Hidden(list field.List, more []field.Reading) (out []string) {
	list.Hidden = more
	for i := range more {
		if d := more[i].Desc; list.Hides(d.ID) {
			out = append(out, d.Name)
		}
	}
	return out
}

// HiddenOf returns the names of the fields that extensions read in addition to a list, and that devices of a collector
// have.
func (a *Program) HiddenOf(cfg *config.Config, list field.List, v *view.View, collector string) []string {
	var read []field.Reading
	for _, r := range a.extend(cfg, list).Hidden {
		if isRead(v, collector, r.Desc.ID) {
			read = append(read, r)
		}
	}
	return Hidden(list, read)
}

// isRead reports whether a collector reads a field of any device.
func isRead(v *view.View, collector string, id field.ID) bool {
	for _, s := range v.Sources {
		for i := range s.Columns {
			if s.Collector == collector && s.Columns[i].Field == id {
				return true
			}
		}
	}
	return false
}
