package exporter

import (
	"fmt"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
)

// Vendor is a row of the table of collectors.
type Vendor struct {
	Name    string
	Setting config.Tristate
	Open    collector.Factory
	// Supplies reports whether some device can have a field, as far as is known without
	// one. Nil for simulated GPUs.
	Supplies func(*field.Descriptor) bool
	Maker    *field.Vendor // of the devices; nil for simulated GPUs
	// Processes makes the collector of the processes on the same devices, which runs as
	// it does, next to it; nil if there is none, or if they are not wanted.
	Processes collector.Factory
	// Isolated says that sessions run in a child process: a vendor's library is loaded.
	Isolated bool
	// Environment is how the names of variables begin that the library reads.
	Environment []string
	// Fallback names the collector that serves the same devices when this one cannot.
	Fallback string
	// Echo says that what the library logs in its child process goes to standard error.
	Echo bool
	// Simulated rows invent their values.
	Simulated bool
	// Present reports cheaply, without a library, whether the devices can be there, or
	// what was looked for. It is asked before each session unless the collector was
	// enabled by name. Nil: they can.
	Present func() (string, bool)
}

// VendorTable returns the rows of all collectors that are built in, in order of priority, and that of simulated GPUs if a
// user asks for them. start is when the exporter was started; zero: now.
type VendorTable func(cfg *config.Config, start time.Time, log *zap.Logger) ([]Vendor, error)

// Collectors returns the rows that the configuration wants.
func (a *Program) Collectors(cfg *config.Config, log *zap.Logger) ([]Vendor, error) {
	return a.WithProcesses(cfg, log, cfg.Kubernetes.ProcessValuesWanted())
}

// WithProcesses is collectors, with the collectors of processes if they are wanted.
func (a *Program) WithProcesses(cfg *config.Config, log *zap.Logger, wanted bool) ([]Vendor, error) {
	// If the simulated node is isolated, the parent makes it, too, to find mistakes in its spec at start, but never
	// opens it.
	all, err := a.Vendors(cfg, time.Time{}, log)
	if err != nil {
		return nil, err
	}
	var out []Vendor
	for _, v := range all {
		if v.Setting == config.Off || !cfg.Uses(v.Name) {
			continue
		}
		if v.Setting == config.On {
			v.Present = nil
		}
		if v.Simulated {
			log.Warn("serving simulated GPUs: their numbers are invented", zap.String("collector", v.Name))
		}
		v.Isolated = v.Isolated && (v.Simulated || cfg.IsolateVendors())
		if !wanted {
			v.Processes = nil
		}
		out = append(out, v)
	}
	return out, nil
}

// ChildFactory returns the collector of that name for the process that is started for it. start is when the exporter was
// started.
func (a *Program) ChildFactory(cfg *config.Config, name string, start time.Time, log *zap.Logger) (collector.Factory, error) {
	all, err := a.Vendors(cfg, start, log)
	if err != nil {
		return nil, err
	}
	for _, v := range all {
		for _, f := range []collector.Factory{v.Open, v.Processes} {
			if f != nil && f().Name() == name {
				return f, nil
			}
		}
	}
	return nil, fmt.Errorf("no collector %q", name)
}
