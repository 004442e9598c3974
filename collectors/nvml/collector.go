//go:build linux && cgo

package nvml

import (
	"context"
	"fmt"
	"sync"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Collector is NVML.
type Collector struct {
	o Options

	mu  sync.Mutex
	lib *library // while it is open
}

var _ collector.Collector = (*Collector)(nil)

// New returns an unopened collector and touches nothing.
func New(o Options) *Collector { return &Collector{o: o.withDefaults()} }

// Name is "nvml".
func (*Collector) Name() string { return "nvml" }

// Open loads and initialises NVML. An error says what was tried, what there is
// and what to do, and leaves nothing open.
func (c *Collector) Open(ctx context.Context, _ field.List) ([]collector.Source, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	lib, err := process.acquire(ctx, c.o)
	if err != nil {
		return nil, fmt.Errorf("open NVML: %w", err)
	}
	c.mu.Lock()
	c.lib = lib
	c.mu.Unlock()
	err = fmt.Errorf("open NVML: %w: sampling is not part of this build; library %s, driver %s", collector.ErrNotBuiltIn, lib.path, lib.driver)
	if e := c.Close(); e != nil {
		return nil, fmt.Errorf("%w (%w)", err, e)
	}
	return nil, err
}

// Close lets NVML go.
func (c *Collector) Close() error {
	c.mu.Lock()
	lib := c.lib
	c.lib = nil
	c.mu.Unlock()
	if lib == nil {
		return nil
	}
	return process.release(lib)
}
