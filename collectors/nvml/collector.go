//go:build linux && cgo

package nvml

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Collector reads NVIDIA GPUs through NVML.
type Collector struct {
	o       Options
	pending *pending

	mu      sync.Mutex
	lib     *library // nil while closed
	sources []collector.Source
	gpus    discovery // searched again by Rescan
	found   inventory // Rescan compares with it
	unread  int       // GPUs with MIG instances that cannot be read
	gone    time.Time // when Rescan first missed a GPU; zero while none is missing
	kept    *keptXIDs
}

var (
	_ collector.Collector = (*Collector)(nil)
	_ collector.Rescanner = (*Collector)(nil)
	_ collector.Limited   = (*Collector)(nil)
	_ collector.Keeper    = (*Collector)(nil)
)

// New returns an unopened collector and touches nothing.
func New(o Options) *Collector { return newCollector(o, Name) }

func newCollector(o Options, name string) *Collector {
	o = o.withDefaults(name)
	return &Collector{o: o, pending: &pending{patience: o.Patience}, kept: &keptXIDs{}}
}

// Name is "nvml".
func (*Collector) Name() string { return Name }

// Keep implements collector.Keeper.
func (c *Collector) Keep() {
	if c.kept.gpus == nil {
		c.kept.gpus = map[string]*xids{}
	}
}

// Inherit implements collector.Keeper.
func (c *Collector) Inherit(closed collector.Collector) {
	if f, ok := closed.(*Collector); ok {
		c.kept = f.kept
	}
}

// Release implements collector.Keeper.
func (c *Collector) Release() { c.kept.free() }

// Open loads and initialises NVML, finds the GPUs and binds the fields to each. If NVML supplies none of the list's
// fields, Open returns collector.ErrNothingToRead. An error names the attempts, the findings and the remedy. After
// an error nothing stays open, except that a library call which hangs keeps the library open until it returns.
func (c *Collector) Open(ctx context.Context, fields field.List) ([]collector.Source, error) {
	if len(fields.Readings()) == 0 {
		return nil, fmt.Errorf("open NVML: %w: the list has no fields, so it is not loaded", collector.ErrNothingToRead)
	}
	return c.open(ctx, func(ctx context.Context, gpus []*gpu) ([]collector.Source, error) {
		a := assembly{lib: c.lib, log: c.o.Log, pending: c.pending, fields: fields.Readings(), labels: fields.Labels(), gpus: gpus, kept: c.kept}
		sources, err := a.sources(ctx)
		if err == nil {
			err = readable(sources)
		}
		return sources, err
	})
}

// open opens NVML and builds the sources of the GPUs.
func (c *Collector) open(ctx context.Context, assemble func(context.Context, []*gpu) ([]collector.Source, error)) ([]collector.Source, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	lib, err := process.open(ctx, c.o)
	c.kept.release()
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
	// If ctx ended while Open waited for a GPU, that GPU counts as hanging. That is right for a deadline, but a
	// cancelled Open must fail.
	if cancelled := ctx.Err(); errors.Is(cancelled, context.Canceled) {
		err = cancelled
	}
	if err != nil {
		closeAll(sources)
		c.abandon()
		return nil, fmt.Errorf("open NVML: %w", outdated(err))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sources, c.found, c.unread = sources, takeInventory(gpus), 0
	for _, g := range gpus {
		if g.device.Unread != "" {
			c.unread++
			c.o.Log.Warn("cannot read all MIG instances of a GPU; without permission, a container needs NVIDIA_MIG_MONITOR_DEVICES=all and CAP_SYS_ADMIN",
				zap.String("gpu", g.device.GPU), zap.String("device", g.device.ID), zap.String("error", g.device.Unread))
		}
	}
	return sources, nil
}

// abandon closes the library when no call is running: at once, or when the call that hangs returns.
func (c *Collector) abandon() {
	c.mu.Lock()
	lib := c.lib
	c.lib = nil
	c.mu.Unlock()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		c.pending.all.Wait()
		if err := lib.close(); err != nil {
			c.o.Log.Warn("cannot close NVML", zap.Error(err))
		}
	}()
	select {
	case <-closed:
	case <-time.After(time.Second):
	}
}

// outdated wraps errors that mean "NVML is no longer initialised" or "the driver was replaced" in
// collector.ErrOutdated: only a new Open, or a new process, helps.
func outdated(err error) error {
	for _, code := range [...]nvml.Return{nvml.ERROR_UNINITIALIZED, nvml.ERROR_DRIVER_NOT_LOADED, nvml.ERROR_LIB_RM_VERSION_MISMATCH} {
		if errors.Is(err, code) && !errors.Is(err, collector.ErrOutdated) {
			return fmt.Errorf("%w: %w", collector.ErrOutdated, err)
		}
	}
	return err
}

// readable returns why no source has columns, or nil if one has some or is of a GPU that hangs or is lost.
func readable(sources []collector.Source) error {
	err := fmt.Errorf("%w: none of %d GPUs has a field of the list", collector.ErrNothingToRead, len(sources))
	for _, s := range sources {
		silent, ok := s.(*silentSource)
		switch {
		case len(s.Columns()) > 0, ok && silent.Silent():
			return nil
		case ok:
			err = fmt.Errorf("no GPU that answers has a field of the list: %w", silent.err)
		}
	}
	return err
}

// LeftOut implements collector.Limited.
func (c *Collector) LeftOut() int { return c.gpus.leftOut + c.unread }

// Rescan reports whether a new Open would find other devices. It makes a few read-only calls per GPU.
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
	switch grown, shrunk := found.compare(now); {
	case grown:
		return true, nil
	case !shrunk:
		c.gone = time.Time{}
		return false, nil
	case c.gone.IsZero():
		c.gone = time.Now()
	}
	return time.Since(c.gone) >= goneFor, nil
}

// Close closes the sources and NVML. It waits for a call that hangs.
func (c *Collector) Close() error {
	c.mu.Lock()
	lib, sources := c.lib, c.sources
	c.lib, c.sources = nil, nil
	c.mu.Unlock()
	kept := lib != nil && c.kept.put(sources, lib)
	closeAll(sources)
	if lib == nil {
		return nil
	}
	c.pending.all.Wait()
	if kept {
		return nil
	}
	return lib.close()
}

// Processes lists the processes on NVIDIA GPUs. Its devices have the same IDs as in Collector and in collectors/dcgm.
type Processes struct{ *Collector }

var (
	_ collector.Collector = (*Processes)(nil)
	_ collector.Rescanner = (*Processes)(nil)
)

// NewProcesses returns an unopened collector and touches nothing.
func NewProcesses(o Options) *Processes { return &Processes{newCollector(o, ProcessesName)} }

// Name is "nvml-processes".
func (*Processes) Name() string { return ProcessesName }

// Open opens NVML as Collector.Open does. It returns one source per GPU, MIG instances included, with the columns of
// collector.AppendProcessColumns whatever the list has. It does not list processes yet, because that call could hang.
func (c *Processes) Open(ctx context.Context, _ field.List) ([]collector.Source, error) {
	return c.open(ctx, func(_ context.Context, gpus []*gpu) ([]collector.Source, error) {
		sources := make([]collector.Source, len(gpus))
		for i, g := range gpus {
			sources[i] = c.source(g)
		}
		return sources, readable(sources)
	})
}

func (c *Processes) source(g *gpu) collector.Source {
	if g.err != nil {
		return c.lib.silent(g, g.err, g.silent)
	}
	devices := []collector.Device{g.device}
	for _, in := range g.instances {
		devices = append(devices, in.device)
	}
	costs := &costs{}
	return newSource(g.reader, devices, costs, nil, newMIGPart(c.lib, g, costs), newProcessPart(c.lib, g, c.o.Log, costs))
}
