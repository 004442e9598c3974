package accounts

import (
	"warpgauge/pkg/config"
	"warpgauge/pkg/exporter"
	"warpgauge/pkg/field"
)

// Extension implements exporter.Extension.
type Extension struct{ Settings }

// Settings holds the extension's flags.
type Settings struct{ Accounts bool }

var _ interface {
	exporter.Extension
	exporter.Reader
} = (*Extension)(nil)

// Flags adds the extension's flags.
func (s *Settings) Flags(set *config.Set) {
	set.Add(config.Section{Origin: config.Own, Flags: []config.Flag{{
		Name: "accounts", Env: "WARPGAUGE_ACCOUNTS", Group: "Accounts", Value: config.Bool(&s.Accounts),
		Usage: "Count what each pod and job has used of each GPU, in energy, time and memory: warpgauge_owner_… Needs --kubernetes or --hpc-job-mapping-dir.",
	}}})
}

// Readings implements exporter.Reader.
func (e *Extension) Readings(*config.Config, field.List) (out []field.Reading) {
	if !e.Accounts {
		return nil
	}
	for _, id := range []field.ID{field.TotalEnergy, field.PowerUsage, field.GPUUtilization, framebuffer, field.SMClock, field.ClockEventReasons, field.XIDEvent} {
		if d, known := field.ByID(id); known {
			out = append(out, field.Reading{Desc: d, Default: true})
		}
	}
	return out
}

// Start implements exporter.Extension.
func (e *Extension) Start(c exporter.Core) ([]exporter.Stage, []exporter.Route, error) {
	if !e.Accounts {
		return nil, nil, nil
	}
	if c.Owners == nil {
		c.Log.Warn("no accounts without owners: set --kubernetes or --hpc-job-mapping-dir")
		return nil, nil, nil
	}
	l := New(c.Owners)
	c.Rows.Follow(l)
	c.Registry.MustRegister(l)
	return nil, nil, nil
}
