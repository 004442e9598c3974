package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"warpgauge/collectors/dcgm"
	"warpgauge/collectors/fake"
	"warpgauge/collectors/nvml"
	"warpgauge/collectors/rocm"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/config"
	"warpgauge/pkg/field"
)

// vendor is a row of the table of collectors.
type vendor struct {
	name    string
	setting config.Tristate
	open    collector.Factory
	// supplies reports whether some device can have a field, as far as is known without
	// one. Nil for simulated GPUs.
	supplies func(*field.Descriptor) bool
	maker    *field.Vendor // of the devices; nil for simulated GPUs
	// processes makes the collector of the processes on the same devices, which runs as
	// it does, next to it; nil if there is none, or if they are not wanted.
	processes collector.Factory
	// isolated says that sessions run in a child process: a vendor's library is loaded.
	isolated bool
	// environment is how the names of variables begin that the library reads.
	environment []string
	// fallback names the collector that serves the same devices when this one cannot.
	fallback string
	// echo says that what the library logs in its child process goes to standard error.
	echo bool
	// present reports cheaply, without a library, whether the devices can be there, or
	// what was looked for. It is asked before each session unless the collector was
	// enabled by name. Nil: they can.
	present func() (string, bool)
}

// vendors is the table of collectors, in order of priority.
func vendors(cfg *config.Config, log *zap.Logger) []vendor {
	n := nvml.Options{Library: cfg.NVMLSource.Library, DriverRoots: cfg.NVMLSource.DriverRoots, Log: log}
	d := dcgmOptions(cfg, log)
	amd := rocm.Options{
		Source: cfg.ROCmSource, Library: cfg.ROCmLibrary, Log: log.Named("rocm"),
	}
	nvidia := func() (string, bool) {
		return "no NVIDIA GPU: neither device nodes in /dev nor display controllers in /sys/bus/pci", nvml.Present("")
	}
	nvidiaVariables := []string{"NVIDIA_", "CUDA_", "NVML_", "DCGM_", "NV_", "__NVML"}
	return []vendor{
		{
			name: "dcgm", setting: cfg.DCGM, maker: field.VendorNVIDIA, environment: nvidiaVariables, fallback: nvml.Name, echo: cfg.HostEngine.Log,
			isolated: true, present: unless(d.Engine != "" || d.Library != "", nvidia),
			open: func() collector.Collector { return dcgm.New(d) }, supplies: dcgm.Supplies,
		},
		{
			name: nvml.Name, setting: cfg.NVML, maker: field.VendorNVIDIA, environment: nvidiaVariables,
			isolated: true, present: unless(n.Library != "", nvidia),
			open:      func() collector.Collector { return nvml.New(n) },
			supplies:  nvml.Has(),
			processes: func() collector.Collector { return nvml.NewProcesses(n) }, // DCGM's have the same ids
		},
		{
			name: rocm.Name, setting: cfg.ROCm, maker: field.VendorAMD,
			environment: []string{"ROCM_", "ROCR_", "RSMI_", "AMDSMI_", "HSA_", "HIP_"},
			isolated:    cfg.ROCmSource == config.ROCmSMI || cfg.ROCmSource == config.ROCmAMDSMI,
			present: func() (string, bool) {
				return "no AMD GPU with the amdgpu driver in /sys/class/kfd or /sys/bus/pci", rocm.Present("")
			},
			open:      func() collector.Collector { return rocm.New(amd) },
			supplies:  rocm.Supplies,
			processes: func() collector.Collector { return rocm.NewProcesses(amd) },
		},
	}
}

// unless returns nil, which means present, if a library or an engine was named.
func unless(named bool, present func() (string, bool)) func() (string, bool) {
	if named {
		return nil
	}
	return present
}

// collectors are the rows of the table that the configuration wants. Simulated GPUs
// come only if a user asks for them.
func collectors(cfg *config.Config, log *zap.Logger) ([]vendor, error) {
	return withProcesses(cfg, log, cfg.Kubernetes.ProcessValuesWanted())
}

// withProcesses is collectors, with those of processes if they are wanted.
func withProcesses(cfg *config.Config, log *zap.Logger, wanted bool) ([]vendor, error) {
	all := vendors(cfg, log)
	if err := known(cfg.Only, all); err != nil {
		return nil, err
	}
	var out []vendor
	for _, v := range all {
		if v.setting == config.Off || !cfg.Uses(v.name) {
			continue
		}
		v.isolated = v.isolated && cfg.IsolateVendors()
		if v.setting == config.On {
			v.present = nil
		}
		out = append(out, v)
	}
	if cfg.Simulates() {
		// If it is isolated the parent makes the node, too, to find mistakes in its spec
		// at start, but never opens it.
		f, err := simulatedVendor(cfg, time.Time{})
		if err != nil {
			return nil, err
		}
		log.Warn("serving simulated GPUs: their numbers are invented", zap.String("collector", f.name))
		out = append(out, f)
	}
	if !wanted {
		for i := range out {
			out[i].processes = nil
		}
	}
	return out, nil
}

// known refuses names in --enable-only that no collector has.
func known(only string, all []vendor) error {
	names := []string{fake.Name}
	for _, v := range all {
		names = append(names, v.name)
	}
	for _, name := range config.SplitList(only) {
		if !slices.Contains(names, name) {
			slices.Sort(names)
			return fmt.Errorf("--enable-only names %q: write some of %s", name, strings.Join(names, ", "))
		}
	}
	return nil
}

// childFactory makes the collector of that name, for the process that is started
// for it. start is when the exporter was started.
func childFactory(cfg *config.Config, name string, start time.Time, log *zap.Logger) (collector.Factory, error) {
	all := vendors(cfg, log)
	if cfg.Simulates() {
		f, err := simulatedVendor(cfg, start)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	for _, v := range all {
		for _, f := range []collector.Factory{v.open, v.processes} {
			if f != nil && f().Name() == name {
				return f, nil
			}
		}
	}
	return nil, fmt.Errorf("no collector %q", name)
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

// simulatedVendor is the row of the simulated node.
func simulatedVendor(cfg *config.Config, start time.Time) (vendor, error) {
	c := cfg.Fake
	o := fake.Options{Profile: c.Profile, Devices: c.Devices, Seed: c.Seed, Isolated: cfg.IsolateFake(), Start: start}
	v := vendor{name: fake.Name, isolated: cfg.IsolateFake()}
	var err error
	if c.Spec != "" {
		if o.Spec, err = fake.LoadSpec(c.Spec); err != nil {
			return vendor{}, err
		}
	}
	if v.open, err = fake.Factory(o); err == nil {
		v.processes, err = fake.ProcessesFactory(o)
	}
	if err != nil {
		return vendor{}, fmt.Errorf("simulate GPUs (--fake-profile, --fake-devices, --fake-spec): %w", err)
	}
	return v, nil
}
