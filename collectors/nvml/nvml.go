// Package nvml is the collector of NVIDIA GPUs through NVML, the library that
// comes with NVIDIA's driver. So far it looks for the library and the driver and
// says what it found; it reads no values.
package nvml

import (
	"context"

	"warpgauge/collectors/internal/probe"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// library is the soname that every driver since 2011 installs; the name without
// ".1" comes with development packages only.
const library = "libnvidia-ml.so.1"

// Options change where the collector looks.
type Options struct {
	Root string // directory that holds /proc and /dev; "" means "/"
	// Find says which file the loader takes for the names; nil means dl.Find.
	Find func(names []string) (path string, err error)
}

// Collector is NVML.
type Collector struct{ o Options }

var _ collector.Collector = (*Collector)(nil)

// New returns an unopened collector and touches nothing.
func New(o Options) *Collector { return &Collector{o: o} }

// Name is "nvml".
func (*Collector) Name() string { return "nvml" }

// Open says in one line which of library and driver there are. It always
// answers an error: collector.ErrNotLoaded where one lacks, else
// collector.ErrNotBuiltIn. Nothing stays open.
func (c *Collector) Open(ctx context.Context, _ field.List) ([]collector.Source, error) {
	return nil, probe.Probe{
		API:       "NVML",
		Libraries: []string{library},
		Driver:    probe.Host{Root: c.o.Root}.NVIDIA(),
		Advice: probe.Advice{
			Nothing:   "on a node with NVIDIA GPUs install the driver",
			NoLibrary: "install the driver's libraries, or start the container with NVIDIA's runtime and NVIDIA_DRIVER_CAPABILITIES=utility",
			NoDriver:  "on a node with NVIDIA GPUs load the driver (modprobe nvidia)",
		},
		Find: c.o.Find,
	}.Open(ctx)
}

// Close has nothing to release.
func (*Collector) Close() error { return nil }
