//go:build linux && cgo

package nvml

import (
	"context"
	"fmt"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Processes is the collector of the processes on NVIDIA's GPUs. Its devices have
// the ids that those of Collector have, and of collectors/dcgm.
type Processes struct{ Collector }

var (
	_ collector.Collector = (*Processes)(nil)
	_ collector.Rescanner = (*Processes)(nil)
)

// NewProcesses returns an unopened collector and touches nothing.
func NewProcesses(o Options) *Processes {
	return &Processes{Collector{o: o.withDefaults(ProcessesName)}}
}

// Name is "nvml-processes".
func (*Processes) Name() string { return ProcessesName }

// Open is as Collector's. It has one source for each GPU, with its MIG instances,
// whose columns are those of package processes, whatever the list asks for.
func (c *Processes) Open(ctx context.Context, _ field.List) ([]collector.Source, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return c.open(ctx, c.find)
}

// find makes a source of each GPU. It asks none of them for processes, which could
// hang.
func (c *Processes) find(ctx context.Context) ([]collector.Source, error) {
	gpus, err := c.gpus.gpus(ctx)
	if err != nil {
		return nil, outdated(err)
	}
	sources := make([]collector.Source, len(gpus))
	for i, g := range gpus {
		if sources[i], err = c.source(g); err != nil {
			(*assembly)(nil).drop(sources[:i])
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.found, c.sources = takeInventory(gpus), sources
	return sources, nil
}

func (c *Processes) source(g *gpu) (collector.Source, error) {
	if g.err != nil {
		return &silentSource{[]collector.Device{g.device}, g.err, g.silent}, nil //nolint:nilerr // its source says so
	}
	devices := []collector.Device{g.device}
	for _, in := range g.instances {
		devices = append(devices, in.device)
	}
	p, err := newProcessPart(c.lib, g, c.o.Log)
	if err != nil {
		return nil, fmt.Errorf("prepare to ask GPU %d for its processes: %w", g.index, err)
	}
	if w := c.lib.newMIGPart(g); w != nil {
		return newSource(devices, w, p), nil
	}
	return newSource(devices, p), nil
}
