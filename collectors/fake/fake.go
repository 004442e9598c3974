// Package fake simulates nodes, down to single links, for demonstrations, dashboards, tests and benchmarks without
// hardware. Values are functions of a seed and of time, and they are consistent: power follows the load, temperature
// follows the power, and energy is the integral of power. A script can inject any fault.
//
// Model names and the driver version end in " (simulated)". README.md describes profiles, load shapes and the script.
// The package starts no goroutine; all methods of World are safe for concurrent use.
package fake

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Options of a simulated node. The zero value is a DGX H100. Settings in Spec override the other fields.
type Options struct {
	Profile string           // one of Profiles(); empty means DefaultProfile
	Devices int              // number of GPUs; 0 means the profile's number
	Spec    *Spec            // may be nil
	Now     func() time.Time // clock of values and faults; nil means time.Now
	Seed    uint64           // nodes with the same profile differ in it
	Curves  *Curves          // load curves shared by several nodes; nil means that the node creates its own

	// Isolated says that the process is a child started for this collector, so faults may crash it. Without Isolated,
	// such faults in a spec are an error.
	Isolated bool
	// Start is when the exporter started. Fault times count from it in every child, however late the child starts. Zero
	// means now.
	Start time.Time
}

// Factory creates a node and returns the factory of its collectors, which all see the same devices, values and faults.
func Factory(o Options) (collector.Factory, error) {
	w, err := NewWorld(o)
	if err != nil {
		return nil, err
	}
	return w.Collector, nil
}

// ProcessesFactory creates a node and returns the factory of its process collectors.
func ProcessesFactory(o Options) (collector.Factory, error) {
	w, err := NewWorld(o)
	if err != nil {
		return nil, err
	}
	return w.Processes, nil
}

// Names of the device collector and of the process collector.
const (
	Name          = "fake"
	ProcessesName = "fake-processes"
)

// Collector reads a World. The device collector has one source per GPU (with its instances and links), one per NVSwitch
// and one per CPU. The process collector has one source per GPU.
type Collector struct {
	world  *World
	name   string
	closed atomic.Bool

	mu     sync.Mutex // Open and Rescan
	opened bool
	gpus   int // number that Open found
}

var (
	_ collector.Collector = (*Collector)(nil)
	_ collector.Rescanner = (*Collector)(nil)
)

// Name returns Name or ProcessesName.
func (c *Collector) Name() string { return c.name }

// Open finds the node's devices and binds fields to them. The process collector has the same columns for every list.
func (c *Collector) Open(ctx context.Context, fields field.List) ([]collector.Source, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.opened || c.closed.Load() {
		return nil, fmt.Errorf("open simulated node: a collector is opened once")
	}
	w := c.world
	elapsed := w.elapsed()
	b := &builder{world: w, fields: fields, readings: fields.Readings(), elapsed: elapsed, count: w.count(elapsed), closed: &c.closed}
	if c.name == Name {
		w.suffer(elapsed)
	}
	if err := w.openError(elapsed); err != nil {
		return nil, err
	}
	sources := b.sources(ctx, c.name == ProcessesName)
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("open simulated node: %w", ctx.Err())
	case len(sources) == 0:
		return nil, fmt.Errorf("open simulated node: its faults leave it 0 GPUs: %w", collector.ErrNoDevices)
	}
	c.opened, c.gpus = true, b.count
	return sources, nil
}

// Rescan reports whether the number of GPUs differs from the one in Open.
func (c *Collector) Rescan(context.Context) (changed bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.world
	elapsed := w.elapsed()
	if err := w.openError(elapsed); err != nil {
		return false, err
	}
	return c.opened && w.count(elapsed) != c.gpus, nil
}

// Close invalidates the sources. It does not wait for hanging calls: they return when their fault ends or the World is
// released.
func (c *Collector) Close() error {
	c.closed.Store(true)
	return nil
}
