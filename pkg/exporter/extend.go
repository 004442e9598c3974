package exporter

import (
	"slices"

	"warpgauge/pkg/field"
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

// Hidden returns the names of the fields that extensions read in addition to the first list, and that devices of a
// collector have.
func (p *Pipeline) Hidden(collector string) []string {
	read := map[field.ID]bool{}
	for _, s := range p.Engine.Board().Load().Sources {
		for i := range s.Columns {
			read[s.Columns[i].Field] = read[s.Columns[i].Field] || s.Collector == collector
		}
	}
	more := p.program.extend(p.cfg, p.list).Hidden
	return Hidden(p.list, slices.DeleteFunc(more, func(r field.Reading) bool { return !read[r.Desc.ID] }))
}
