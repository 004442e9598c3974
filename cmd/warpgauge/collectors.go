package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"warpgauge/pkg/exporter"

	"go.uber.org/zap"

	"warpgauge/collectors/dcgm"
	"warpgauge/collectors/fake"
	"warpgauge/collectors/nvml"
	"warpgauge/collectors/rocm"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
)

// vendors returns the collectors in order of priority.
func vendors(cfg *config.Config, start time.Time, log *zap.Logger) ([]exporter.Vendor, error) {
	n := nvml.Options{Library: cfg.NVMLSource.Library, DriverRoots: cfg.NVMLSource.DriverRoots, Log: log}
	d := dcgmOptions(cfg, log)
	amd := rocm.Options{
		Source: cfg.ROCmSource, Library: cfg.ROCmLibrary, Log: log.Named("rocm"),
	}
	nvidia := func() (string, bool) {
		return "no NVIDIA GPU: neither device nodes in /dev nor display controllers in /sys/bus/pci", nvml.Present("")
	}
	nvidiaVariables := []string{"NVIDIA_VISIBLE_DEVICES=", "NVIDIA_DRIVER_", "DRIVER_ROOT_CTR_PATH=", "KUBERNETES_SERVICE_HOST=", "container=", "CUDA_MPS_",
		"__NVML_", "__DCGM_", "DCGM_HOME_DIR=", "DCGM_HANGDETECT_", "DCGM_NVML_", "DCGM_NVSWITCH_", "DCGM_SUPPORT_"}
	out := []exporter.Vendor{
		{
			Name: "dcgm", Setting: cfg.DCGM, Maker: field.VendorNVIDIA, Environment: nvidiaVariables, Fallback: nvml.Name, Echo: cfg.HostEngine.Log,
			Isolated: true, Present: unless(d.Engine != "" || d.Library != "", nvidia),
			Open: func() collector.Collector { return dcgm.New(d) }, Supplies: dcgm.Supplies,
		},
		{
			Name: nvml.Name, Setting: cfg.NVML, Maker: field.VendorNVIDIA, Environment: nvidiaVariables,
			Isolated: true, Present: unless(n.Library != "", nvidia),
			Open:      func() collector.Collector { return nvml.New(n) },
			Supplies:  nvml.Has(),
			Processes: func() collector.Collector { return nvml.NewProcesses(n) }, // DCGM's GPUs have the same ids
		},
		{
			Name: rocm.Name, Setting: cfg.ROCm, Maker: field.VendorAMD,
			Environment: []string{"ROCM_PATH=", "ROCR_VISIBLE_DEVICES=", "RSMI_", "AMDSMI_"},
			Isolated:    cfg.ROCmSource == config.ROCmSMI || cfg.ROCmSource == config.ROCmAMDSMI,
			Present: func() (string, bool) {
				return "no AMD GPU with the amdgpu driver in /sys/class/kfd or /sys/bus/pci", rocm.Present("")
			},
			Open:      func() collector.Collector { return rocm.New(amd) },
			Supplies:  rocm.Supplies,
			Processes: func() collector.Collector { return rocm.NewProcesses(amd) },
		},
	}
	if err := known(cfg.Only, out); err != nil {
		return nil, err
	}
	if cfg.Simulates() {
		f, err := simulatedVendor(cfg, start)
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

// unless returns nil, which means present, if the user named a library or an engine.
func unless(named bool, present func() (string, bool)) func() (string, bool) {
	if named {
		return nil
	}
	return present
}

// known returns an error for a name in --enable-only without a collector.
func known(only string, all []exporter.Vendor) error {
	names := []string{fake.Name}
	for _, v := range all {
		names = append(names, v.Name)
	}
	for _, name := range config.SplitList(only) {
		if !slices.Contains(names, name) {
			slices.Sort(names)
			return fmt.Errorf("--enable-only names %q: write some of %s", name, strings.Join(names, ", "))
		}
	}
	return nil
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

// simulatedVendor returns the row for the simulated node.
func simulatedVendor(cfg *config.Config, start time.Time) (exporter.Vendor, error) {
	c := cfg.Fake
	o := fake.Options{Profile: c.Profile, Devices: c.Devices, Seed: c.Seed, Isolated: cfg.IsolateFake(), Start: start}
	v := exporter.Vendor{Name: fake.Name, Simulated: true, Isolated: cfg.IsolateFake()}
	var err error
	if c.Spec != "" {
		if o.Spec, err = fake.LoadSpec(c.Spec); err != nil {
			return exporter.Vendor{}, err
		}
	}
	if v.Open, err = fake.Factory(o); err == nil {
		v.Processes, err = fake.ProcessesFactory(o)
	}
	if err != nil {
		return exporter.Vendor{}, fmt.Errorf("simulate GPUs (--fake-profile, --fake-devices, --fake-spec): %w", err)
	}
	return v, nil
}
