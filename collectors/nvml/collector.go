//go:build linux && cgo

package nvml

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Collector is NVML.
type Collector struct {
	o       Options
	pending *pending

	mu      sync.Mutex
	lib     *library // while it is open
	sources []collector.Source
	gpus    discovery // what Rescan asks
	found   inventory // what it compares with
	gone    time.Time // when Rescan first saw that a GPU is gone; zero while none is
}

var (
	_ collector.Collector = (*Collector)(nil)
	_ collector.Rescanner = (*Collector)(nil)
	_ collector.Limited   = (*Collector)(nil)
)

// New returns an unopened collector and touches nothing.
func New(o Options) *Collector { return newCollector(o, Name) }

func newCollector(o Options, name string) *Collector {
	o = o.withDefaults(name)
	return &Collector{o: o, pending: &pending{patience: o.Patience}}
}

// Name is "nvml".
func (*Collector) Name() string { return Name }

// Open loads and initialises NVML, finds the GPUs and binds fields to each. A list
// that asks for nothing that NVML supplies, here or at all, keeps nothing open:
// collector.ErrNothingToRead. An error says what was tried, what there is and what
// to do, and leaves nothing open, or what a call that hangs needs until it returns.
func (c *Collector) Open(ctx context.Context, fields field.List) ([]collector.Source, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(fields.Readings()) == 0 {
		return nil, fmt.Errorf("open NVML: %w: the list has no fields, so it is not loaded", collector.ErrNothingToRead)
	}
	return c.open(ctx, func(ctx context.Context, gpus []*gpu) ([]collector.Source, error) {
		c.describe(ctx, gpus, fields)
		a := assembly{lib: c.lib, log: c.o.Log, pending: c.pending, fields: fields.Readings(), gpus: gpus}
		sources, err := a.sources(ctx)
		if err == nil && !slices.ContainsFunc(sources, hasColumns) {
			err = nothingToRead(sources)
			closeAll(sources)
		}
		return sources, err
	})
}

// open opens NVML and makes sources of the GPUs.
func (c *Collector) open(ctx context.Context, assemble func(context.Context, []*gpu) ([]collector.Source, error)) ([]collector.Source, error) {
	lib, err := process.open(ctx, c.o)
	if err != nil {
		return nil, fmt.Errorf("open NVML: %w", err)
	}
	c.mu.Lock()
	c.lib, c.gpus = lib, discovery{lib: lib, o: c.o, pending: c.pending}
	c.mu.Unlock()
	gpus, err := c.gpus.gpus(ctx)
	var sources []collector.Source
	if err == nil {
		sources, err = assemble(ctx, gpus)
	}
	// A GPU that was waited for when ctx ended passes for one that hangs. That is
	// right at a deadline, but not if Open was cancelled.
	if cancelled := ctx.Err(); errors.Is(cancelled, context.Canceled) {
		closeAll(sources)
		err = cancelled
	}
	if err != nil {
		c.abandon()
		return nil, fmt.Errorf("open NVML: %w", outdated(err))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sources, c.found = sources, takeInventory(gpus)
	return sources, nil
}

// abandon closes the library when no call is in progress: at once, or, if a call
// hangs, when that returns.
func (c *Collector) abandon() {
	c.mu.Lock()
	lib := c.lib
	c.lib = nil
	c.mu.Unlock()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		c.pending.wait()
		if err := lib.close(); err != nil {
			c.o.Log.Warn("library is not closed", zap.Error(err))
		}
	}()
	select {
	case <-closed:
	case <-time.After(time.Second):
	}
}

// outdated marks an error by which NVML says that it is no longer initialised, or
// that there is another driver: only closing it, or another process, helps.
func outdated(err error) error {
	for _, code := range [...]nvml.Return{nvml.ERROR_UNINITIALIZED, nvml.ERROR_DRIVER_NOT_LOADED, nvml.ERROR_LIB_RM_VERSION_MISMATCH} {
		if errors.Is(err, code) && !errors.Is(err, collector.ErrOutdated) {
			return fmt.Errorf("%w: %w", collector.ErrOutdated, err)
		}
	}
	return err
}

func hasColumns(s collector.Source) bool { return len(s.Columns()) > 0 }

// nothingToRead says why no source has columns: no GPU answers, or those that do have none of
// the fields.
func nothingToRead(sources []collector.Source) error {
	for _, s := range sources {
		if s, ok := s.(*silentSource); ok {
			return fmt.Errorf("no GPU that answers has a field of the list: %w", s.err)
		}
	}
	return fmt.Errorf("%w: %d GPUs, none of which has any of the fields in the list", collector.ErrNothingToRead, len(sources))
}

// LeftOut is collector.Limited.
func (c *Collector) LeftOut() int { return c.gpus.leftOut }

// Rescan reports whether Open would find other devices. It makes a few calls for each
// GPU, none of which sets anything.
func (c *Collector) Rescan(ctx context.Context) (bool, error) {
	c.mu.Lock()
	open, found := c.lib != nil, c.found
	c.mu.Unlock()
	if !open {
		return false, nil
	}
	gpus, err := c.gpus.gpus(ctx)
	if err != nil {
		return false, fmt.Errorf("search for GPUs: %w", outdated(err))
	}
	now := takeInventory(gpus)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case found.grown(now):
		return true, nil
	case !found.shrunk(now):
		c.gone = time.Time{}
		return false, nil
	case c.gone.IsZero():
		c.gone = time.Now()
	}
	return time.Since(c.gone) >= goneFor, nil
}

// Close ends the sources and closes NVML. It waits for a call that hangs.
func (c *Collector) Close() error {
	c.mu.Lock()
	lib, sources := c.lib, c.sources
	c.lib, c.sources = nil, nil
	c.mu.Unlock()
	closeAll(sources)
	if lib == nil {
		return nil
	}
	c.pending.wait()
	return lib.close()
}

// Processes is the collector of the processes on NVIDIA's GPUs. Its devices have
// the ids that those of Collector have, and of collectors/dcgm.
type Processes struct{ *Collector }

var (
	_ collector.Collector = (*Processes)(nil)
	_ collector.Rescanner = (*Processes)(nil)
)

// NewProcesses returns an unopened collector and touches nothing.
func NewProcesses(o Options) *Processes { return &Processes{newCollector(o, ProcessesName)} }

// Name is "nvml-processes".
func (*Processes) Name() string { return ProcessesName }

// Open is as Collector's. It has one source for each GPU, with its MIG instances,
// whose columns are those of package processes, whatever the list asks for. It asks
// no GPU for processes, which could hang.
func (c *Processes) Open(ctx context.Context, _ field.List) ([]collector.Source, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return c.open(ctx, func(_ context.Context, gpus []*gpu) ([]collector.Source, error) {
		sources := make([]collector.Source, len(gpus))
		for i, g := range gpus {
			sources[i] = c.source(g)
		}
		if !slices.ContainsFunc(sources, hasColumns) {
			return nil, nothingToRead(sources)
		}
		return sources, nil
	})
}

func (c *Processes) source(g *gpu) collector.Source {
	devices := []collector.Device{g.device}
	if g.err != nil {
		return &silentSource{devices, g.err, g.silent}
	}
	for _, in := range g.instances {
		devices = append(devices, in.device)
	}
	p := newProcessPart(c.lib, g, c.o.Log)
	if w := newMIGPart(c.lib, g); w != nil {
		return newSource(devices, nil, w, p)
	}
	return newSource(devices, nil, p)
}
