// Package extension is the health extension. It connects the rules (package health) with their inputs: readings and states
// of devices, early signs (signs), the kernel log (kernellog) and the PCI bus (pci). It publishes verdicts on the core's
// board and their changes on its event bus, and starts the consumers (consumer).
package extension

import (
	"time"

	"warpgauge/extensions/health"
	"warpgauge/extensions/health/signs"
	"warpgauge/pkg/config"
	"warpgauge/pkg/exporter"
	"warpgauge/pkg/field"
	"warpgauge/pkg/file"
)

// Extension implements exporter.Extension.
type Extension struct {
	Settings

	// Set by Start.
	watch *health.Watch
	host  *hostEvents
}

// New returns the extension with the defaults of its flags.
func New() *Extension { return &Extension{Settings: Settings{Mode: ModeOn, KernelLog: KernelLogAuto}} }

var _ interface {
	exporter.Extension
	exporter.Reader
} = (*Extension)(nil)

// Readings implements exporter.Reader. It returns the readings that the rules judge.
func (e *Extension) Readings(cfg *config.Config, _ field.List) []field.Reading {
	rules, err := health.Select(e.Rules)
	if err != nil || e.Mode == ModeOff {
		return nil // Settings.check reports the error
	}
	// DCGM's health check takes 30 ms, in which shorter ticks would be missed.
	return rules.Readings(max(cfg.SlowInterval, cfg.Interval), cfg.Interval >= 100*time.Millisecond)
}

// Start implements exporter.Extension.
func (e *Extension) Start(c exporter.Core) ([]exporter.Stage, []exporter.Route, error) {
	rules, err := health.Select(e.Rules)
	if err != nil || e.Mode == ModeOff {
		return nil, nil, err
	}
	cfg, store := c.Config, health.NewStore(e.directory(c.Config, c.Lookup))
	if store != nil {
		*c.Kept = store
	}
	var owners signs.Owners
	if c.Owners != nil { // a nil *Keeper would make a non-nil interface
		owners = c.Owners
	}
	e.watch = health.New(health.Options{
		Rows: c.Rows, Status: c.Engine.Status, Rules: rules, Derived: signs.New(c.Rows, owners), Board: c.Verdicts,
		Store: store, BootID: file.BootID(), Booted: health.Booted(),
		Scope:  cfg.GPUs.String() + " " + cfg.Switches.String() + " " + cfg.CPUs.String(),
		Events: c.Events, Logger: c.Log,
	})
	e.host = newHostEvents(&e.Settings, c, e.watch, store)
	c.Registry.MustRegister(e.watch)
	c.Events.Gate = e.host

	stages := []exporter.Stage{{Name: "health", Run: e.watch.Run}, {Name: "GPUs on the PCI bus", Run: e.host.missing.run}}
	if e.host.log != nil {
		stages = append(stages, exporter.Stage{Name: "kernel log", Run: e.host.follow})
	}
	told, err := e.consumers(c)
	return append(stages, told...), nil, err
}

// directory returns the directory for conditions: the flag's value, even if empty, else a folder in the service's
// state directory from systemd.
func (s *Settings) directory(cfg *config.Config, lookup func(string) (string, bool)) string {
	if cfg.Source(flagDirectory) != config.FromDefault {
		return s.Directory
	}
	return file.StateDirectory(lookup, "health")
}
