package main

import (
	"fmt"

	"go.uber.org/zap"

	"warpgauge/collectors/dcgm"
	"warpgauge/collectors/fake"
	"warpgauge/collectors/nvml"
	"warpgauge/collectors/rocm"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/config"
)

// collectorFactories is the table of collectors: those that the configuration
// wants, in order of priority, with the devices that it wants. Simulated GPUs
// come only where a person asks for them.
func collectorFactories(cfg *config.Config, log *zap.Logger) ([]collector.Factory, error) {
	var out []collector.Factory
	for _, vendor := range []struct {
		setting config.Tristate
		make    collector.Factory
	}{
		{cfg.DCGM, func() collector.Collector { return dcgm.New(dcgm.Options{}) }},
		{cfg.NVML, func() collector.Collector { return nvml.New(nvml.Options{}) }},
		{cfg.ROCm, func() collector.Collector { return rocm.New(rocm.Options{}) }},
	} {
		if vendor.setting != config.Off {
			out = append(out, vendor.make)
		}
	}
	if cfg.Fake.Enabled {
		f, err := fakeFactory(cfg.Fake)
		if err != nil {
			return nil, err
		}
		log.Warn("serving simulated GPUs: their numbers are invented", zap.String("collector", "fake"))
		out = append(out, f)
	}
	by := &selection{gpus: cfg.GPUs, switches: cfg.Switches, cpus: cfg.CPUs, log: log}
	for i, f := range out {
		out[i] = by.wrap(f)
	}
	return out, nil
}

func fakeFactory(c config.Fake) (collector.Factory, error) {
	o := fake.Options{Profile: c.Profile, Devices: c.Devices, Seed: c.Seed}
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
