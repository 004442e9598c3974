package exporter

import "slices"

// Extend starts the extensions: their stages are in Extended, their paths in Routes.
func (p *Pipeline) Extend() error {
	c := Core{
		Config: p.cfg, Lookup: p.program.Lookup, Hostname: p.Hostname, Version: p.program.Build.Version,
		Engine: p.Engine, Events: p.bus, Rows: p.Rows, Verdicts: p.verdicts, Lists: p.desk, Files: p.files, Page: p,
		NotReady: func() []string { return reasons(p.cfg, p.table, p.Engine.Status()) },
		Registry: p.Registry, Log: p.log,
	}
	if p.Owners != nil {
		c.Owners = p.Owners.keeper
	}
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
