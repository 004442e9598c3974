// Package rocm is the collector of AMD GPUs through ROCm SMI. So far it looks
// for the library and the driver and says what it found; it reads no values.
package rocm

import (
	"context"

	"warpgauge/collectors/internal/probe"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// libraries returns the names under which ROCm SMI is installed. AMD's packages
// of ROCm 5, 6.0 and 6.1 to 7 number their soname 5, 6 and 7; distributions and
// builds without version tags say 1. AMD installs outside the loader's paths,
// and some set-ups do not add that directory.
func libraries() []string {
	return []string{
		"librocm_smi64.so.7", "librocm_smi64.so.6", "librocm_smi64.so.5",
		"librocm_smi64.so.1", "librocm_smi64.so", "/opt/rocm/lib/librocm_smi64.so",
	}
}

// Options change where the collector looks.
type Options struct {
	Root string // directory that holds /sys; "" means "/"
	// Find says which file the loader takes for the names; nil means dl.Find.
	Find func(names []string) (path string, err error)
}

// Collector is ROCm SMI.
type Collector struct{ o Options }

var _ collector.Collector = (*Collector)(nil)

// New returns an unopened collector and touches nothing.
func New(o Options) *Collector { return &Collector{o: o} }

// Name is "rocm".
func (*Collector) Name() string { return "rocm" }

// Open says in one line which of library and driver there are. It always
// answers an error: collector.ErrNotLoaded where one lacks, else
// collector.ErrNotBuiltIn. Nothing stays open.
func (c *Collector) Open(ctx context.Context, _ field.List) ([]collector.Source, error) {
	return nil, probe.Probe{
		API:       "ROCm SMI",
		Libraries: libraries(),
		Driver:    probe.Host{Root: c.o.Root}.AMD(),
		Advice: probe.Advice{
			Nothing:   "on a node with AMD GPUs install the amdgpu driver and ROCm SMI",
			NoLibrary: "install ROCm SMI (package rocm-smi-lib), or name its directory in LD_LIBRARY_PATH",
			NoDriver:  "on a node with AMD GPUs load the driver (modprobe amdgpu)",
		},
		Find: c.o.Find,
	}.Open(ctx)
}

// Close has nothing to release.
func (*Collector) Close() error { return nil }
