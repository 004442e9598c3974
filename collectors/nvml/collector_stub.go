//go:build !linux || !cgo

package nvml

import (
	"context"
	"fmt"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Collector replaces the NVML collector in a binary that cannot load NVML.
type Collector struct{}

// New returns an unopened collector and touches nothing.
func New(Options) *Collector { return &Collector{} }

// Name is "nvml".
func (*Collector) Name() string { return Name }

// Open returns collector.ErrNotBuiltIn, wrapped.
func (*Collector) Open(ctx context.Context, _ field.List) ([]collector.Source, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("open NVML: %w: a binary built without cgo, or not for Linux, loads no libraries: use a binary built with CGO_ENABLED=1", collector.ErrNotBuiltIn)
}

// Close has nothing to release.
func (*Collector) Close() error { return nil }

// Processes replaces the collector of processes in a binary that cannot load NVML.
type Processes struct{ Collector }

// NewProcesses returns an unopened collector and touches nothing.
func NewProcesses(Options) *Processes { return &Processes{} }

// Name is "nvml-processes".
func (*Processes) Name() string { return ProcessesName }

// Has reports false for every field.
func Has() func(*field.Descriptor) bool { return func(*field.Descriptor) bool { return false } }
