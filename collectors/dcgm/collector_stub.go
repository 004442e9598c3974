//go:build !linux || !cgo

package dcgm

import (
	"context"
	"fmt"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Collector replaces the DCGM collector in a binary without cgo.
type Collector struct{}

// New returns a collector that cannot be opened.
func New(Options) *Collector { return &Collector{} }

// Name is "dcgm".
func (*Collector) Name() string { return "dcgm" }

// Open returns collector.ErrNotBuiltIn.
func (*Collector) Open(context.Context, field.List) ([]collector.Source, error) {
	return nil, fmt.Errorf("open DCGM: %w: this binary was built without cgo", collector.ErrNotBuiltIn)
}

// Close has nothing to release.
func (*Collector) Close() error { return nil }
