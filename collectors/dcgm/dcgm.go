// Package dcgm is the collector of NVIDIA GPUs through DCGM 4, NVIDIA's data
// centre GPU manager. So far it looks for the library and the driver and says
// what it found; it reads no values.
package dcgm

import (
	"context"

	"warpgauge/collectors/internal/probe"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// library is the soname of DCGM 4.
const library = "libdcgm.so.4"

// Options change where the collector looks.
type Options struct {
	Root string // directory that holds /proc and /dev; "" means "/"
	// Find says which file the loader takes for the names; nil means dl.Find.
	Find func(names []string) (path string, err error)
}

// Collector is DCGM.
type Collector struct{ o Options }

var _ collector.Collector = (*Collector)(nil)

// New returns an unopened collector and touches nothing.
func New(o Options) *Collector { return &Collector{o: o} }

// Name is "dcgm".
func (*Collector) Name() string { return "dcgm" }

// Open says in one line which of library and driver there are. It always
// answers an error: collector.ErrNotLoaded where one lacks, else
// collector.ErrNotBuiltIn. It connects to no host engine; nothing stays open.
func (c *Collector) Open(ctx context.Context, _ field.List) ([]collector.Source, error) {
	return nil, probe.Probe{
		API:       "DCGM",
		Libraries: []string{library},
		Driver:    probe.Host{Root: c.o.Root}.NVIDIA(),
		Advice: probe.Advice{
			Nothing:   "on a node with NVIDIA data centre GPUs install the driver and DCGM 4",
			NoLibrary: "install DCGM 4 (package datacenter-gpu-manager-4-core)",
			NoDriver:  "on a node with NVIDIA GPUs load the driver (modprobe nvidia)",
		},
		Find: c.o.Find,
	}.Open(ctx)
}

// Close has nothing to release.
func (*Collector) Close() error { return nil }
