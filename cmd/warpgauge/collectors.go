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
}

// collectors is the table of collectors: those that the configuration wants, in
// order of priority, with the devices that it wants. Simulated GPUs come only
// where a person asks for them.
func collectors(cfg *config.Config, log *zap.Logger) ([]enabled, error) {
	var out []enabled
	for _, vendor := range vendors(cfg, log) {
		if vendor.setting != config.Off {
			out = append(out, enabled{vendor.make, cfg.IsolateVendors()})
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
		out = append(out, enabled{f, cfg.IsolateFake()})
	}
	by := newSelection(cfg, log)
	for i := range out {
		out[i].factory = by.wrap(out[i].factory)
	}
	return out, nil
}

// childFactory is the row of the table with that name, for the process that is
// started for it. start is when the exporter was started.
func childFactory(cfg *config.Config, name string, start time.Time, log *zap.Logger) (collector.Factory, error) {
	by := newSelection(cfg, log)
	for _, vendor := range vendors(cfg, log) {
		if vendor.make().Name() == name {
			return by.wrap(vendor.make), nil
		}
	}
	if name != "fake" || !cfg.Fake.Enabled {
		return nil, fmt.Errorf("no collector %q", name)
	}
	f, err := fakeFactory(cfg, start)
	if err != nil {
		return nil, err
	}
	return by.wrap(f), nil
}

func newSelection(cfg *config.Config, log *zap.Logger) *selection {
	return &selection{gpus: cfg.GPUs, switches: cfg.Switches, cpus: cfg.CPUs, log: log}
}

type vendor struct {
	setting config.Tristate
	make    collector.Factory
}

func vendors(cfg *config.Config, log *zap.Logger) []vendor {
	n := nvml.Options{Library: cfg.NVMLSource.Library, DriverRoots: cfg.NVMLSource.DriverRoots, Log: log}
	d := dcgmOptions(cfg, log)
	amd := rocm.Options{
		Source: cfg.ROCmSource, Library: cfg.ROCmLibrary, Libraries: new(rocm.Libraries), Log: log.Named("rocm"),
	}
	return []vendor{
		{cfg.DCGM, func() collector.Collector { return dcgm.New(d) }},
		{cfg.NVML, func() collector.Collector { return nvml.New(n) }},
		{cfg.ROCm, func() collector.Collector { return rocm.New(amd) }},
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
	c := cfg.Fake
	o := fake.Options{Profile: c.Profile, Devices: c.Devices, Seed: c.Seed, Isolated: cfg.IsolateFake(), Start: start}
	if c.Spec != "" {
		spec, err := fake.LoadSpec(c.Spec)
		if err != nil {
			return nil, err
		}
		o.Spec = spec
	}
	f, err := fake.Factory(o)
	if err != nil {
		return nil, fmt.Errorf("simulate GPUs (--fake-profile, --fake-devices, --fake-spec): %w", err)
	}
	return f, nil
}
