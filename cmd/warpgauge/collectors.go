package main

import (
	"fmt"
	"time"

	"go.uber.org/zap"

	"warpgauge/collectors/dcgm"
	"warpgauge/collectors/fake"
	"warpgauge/collectors/nvml"
	"warpgauge/collectors/rocm"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/config"
)

// enabled is a collector that the configuration wants.
type enabled struct {
	factory  collector.Factory
	isolated bool // runs in a process of its own
	// processes makes the collector of the processes on its devices, which runs as it
	// does, beside it; nil where they are not wanted, or not known to its library.
	processes collector.Factory
}

// collectors is the table of collectors: those that the configuration wants, in
// order of priority, with the devices that it wants. Simulated GPUs come only
// where a person asks for them.
func collectors(cfg *config.Config, log *zap.Logger) ([]enabled, error) {
	var out []enabled
	for _, vendor := range vendors(cfg, log) {
		if vendor.setting != config.Off {
			out = append(out, enabled{vendor.make, cfg.IsolateVendors(), vendor.processes})
		}
	}
	if cfg.Fake.Enabled {
		// With a wall the parent makes the node, too, to find mistakes in its spec at
		// start, but never opens it.
		f, err := fakeFactory(cfg, time.Time{})
		if err != nil {
			return nil, err
		}
		log.Warn("serving simulated GPUs: their numbers are invented", zap.String("collector", "fake"))
		p, err := fakeProcesses(cfg, time.Time{})
		if err != nil {
			return nil, err
		}
		out = append(out, enabled{f, cfg.IsolateFake(), p})
	}
	by, silent := newSelection(cfg, log), newSelection(cfg, zap.NewNop()) // one of them warns
	for i := range out {
		out[i].factory = by.wrap(out[i].factory)
		if p := out[i].processes; p != nil {
			out[i].processes = silent.wrap(p)
		}
		if !cfg.Kubernetes.ProcessValuesWanted() {
			out[i].processes = nil
		}
	}
	return out, nil
}

// childFactory is the row of the table with that name, for the process that is
// started for it. start is when the exporter was started.
func childFactory(cfg *config.Config, name string, start time.Time, log *zap.Logger) (collector.Factory, error) {
	by := newSelection(cfg, log)
	for _, vendor := range vendors(cfg, log) {
		for _, f := range []collector.Factory{vendor.make, vendor.processes} {
			if f != nil && f().Name() == name {
				return by.wrap(f), nil
			}
		}
	}
	simulated := map[string]func(*config.Config, time.Time) (collector.Factory, error){
		fake.Name: fakeFactory, fake.ProcessesName: fakeProcesses,
	}[name]
	if simulated == nil || !cfg.Fake.Enabled {
		return nil, fmt.Errorf("no collector %q", name)
	}
	f, err := simulated(cfg, start)
	if err != nil {
		return nil, err
	}
	return by.wrap(f), nil
}

func newSelection(cfg *config.Config, log *zap.Logger) *selection {
	return &selection{gpus: cfg.GPUs, switches: cfg.Switches, cpus: cfg.CPUs, log: log}
}

type vendor struct {
	setting   config.Tristate
	make      collector.Factory
	processes collector.Factory // nil: it does not tell them
}

func vendors(cfg *config.Config, log *zap.Logger) []vendor {
	n := nvml.Options{Library: cfg.NVMLSource.Library, DriverRoots: cfg.NVMLSource.DriverRoots, Log: log}
	d := dcgmOptions(cfg, log)
	amd := rocm.Options{
		Source: cfg.ROCmSource, Library: cfg.ROCmLibrary, Log: log.Named("rocm"),
	}
	return []vendor{
		{cfg.DCGM, func() collector.Collector { return dcgm.New(d) }, nil}, // NVML's have the same ids
		{cfg.NVML, func() collector.Collector { return nvml.New(n) }, func() collector.Collector { return nvml.NewProcesses(n) }},
		{cfg.ROCm, func() collector.Collector { return rocm.New(amd) }, func() collector.Collector { return rocm.NewProcesses(amd) }},
	}
}

func dcgmOptions(cfg *config.Config, log *zap.Logger) dcgm.Options {
	o := dcgm.Options{
		Library: cfg.HostEngine.Library, FakeGPUs: cfg.AcceptFakeGPUs,
		Interval: cfg.Interval, SlowInterval: cfg.SlowInterval,
		LogLevel: cfg.HostEngine.LogLevel, Log: log,
	}
	if cfg.RemoteHostEngine() {
		o.Engine = cfg.HostEngine.Address
	}
	if cfg.HostEngine.Log {
		o.LogFile = "/dev/stderr"
	}
	return o
}

func fakeFactory(cfg *config.Config, start time.Time) (collector.Factory, error) {
	return simulation(cfg, start, fake.Factory)
}

func fakeProcesses(cfg *config.Config, start time.Time) (collector.Factory, error) {
	return simulation(cfg, start, fake.ProcessesFactory)
}

func simulation(cfg *config.Config, start time.Time, factory func(fake.Options) (collector.Factory, error)) (collector.Factory, error) {
	c := cfg.Fake
	o := fake.Options{Profile: c.Profile, Devices: c.Devices, Seed: c.Seed, Isolated: cfg.IsolateFake(), Start: start}
	if c.Spec != "" {
		spec, err := fake.LoadSpec(c.Spec)
		if err != nil {
			return nil, err
		}
		o.Spec = spec
	}
	f, err := factory(o)
	if err != nil {
		return nil, fmt.Errorf("simulate GPUs (--fake-profile, --fake-devices, --fake-spec): %w", err)
	}
	return f, nil
}
