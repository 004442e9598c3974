//go:build linux && cgo

package nvml

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Collector is NVML.
type Collector struct {
	o Options

	mu      sync.Mutex
	lib     *library // while it is open
	sources []collector.Source
	gpus    discovery // what Rescan asks
	found   inventory // what it compares with
}

var (
	_ collector.Collector = (*Collector)(nil)
	_ collector.Rescanner = (*Collector)(nil)
)

// New returns an unopened collector and touches nothing.
func New(o Options) *Collector { return &Collector{o: o.withDefaults(Name)} }

// Name is "nvml".
func (*Collector) Name() string { return Name }

// Open loads and initialises NVML, finds the GPUs and binds fields to each. A list
// that asks for nothing that NVML supplies, here or at all, keeps nothing open:
// collector.ErrNothingToRead. An error says what was tried, what there is and what
// to do, and leaves nothing open.
func (c *Collector) Open(ctx context.Context, fields field.List) ([]collector.Source, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if len(fields.Readings()) == 0 {
		return nil, fmt.Errorf("open NVML: %w: the list has no fields, so it is left alone", collector.ErrNothingToRead)
	}
	return c.open(ctx, func(ctx context.Context) ([]collector.Source, error) { return c.discover(ctx, fields) })
}

// open acquires NVML and makes sources of what discover finds.
func (c *Collector) open(ctx context.Context, discover func(context.Context) ([]collector.Source, error)) ([]collector.Source, error) {
	lib, err := process.acquire(ctx, c.o)
	if err != nil {
		return nil, fmt.Errorf("open NVML: %w", err)
	}
	hold := func() func() { return c.hold(lib) }
	c.mu.Lock()
	c.lib = lib
	c.gpus = discovery{lib: lib, o: c.o, hold: hold}
	c.mu.Unlock()
	sources, err := discover(ctx)
	// A GPU that was waited for when ctx ended passes for one that hangs. That is
	// right at a deadline; but who cancels wants nothing, least of all that.
	if cancelled := ctx.Err(); errors.Is(cancelled, context.Canceled) {
		err = cancelled
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open NVML: %w", err), c.Close())
	}
	return sources, nil
}

func (c *Collector) discover(ctx context.Context, fields field.List) ([]collector.Source, error) {
	gpus, err := c.gpus.gpus(ctx)
	if err != nil {
		return nil, outdated(err)
	}
	c.gpus.describe(ctx, gpus, fields)
	a := assembly{lib: c.gpus.lib, o: c.o, fields: fields.Readings(), hold: c.gpus.hold, gpus: gpus}
	sources, err := a.sources(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.found, c.sources = takeInventory(gpus), sources
	c.mu.Unlock()
	if !slices.ContainsFunc(sources, readsSomething) {
		return nil, fmt.Errorf("%w: %d GPUs, none of which has any of the fields in the list", collector.ErrNothingToRead, len(gpus))
	}
	return sources, nil
}

// outdated marks an error by which NVML says that it is no longer initialised, or
// that there is another driver: only closing it, or another process, helps.
func outdated(err error) error {
	for _, code := range [...]nvml.Return{nvml.ERROR_UNINITIALIZED, nvml.ERROR_DRIVER_NOT_LOADED, nvml.ERROR_LIB_RM_VERSION_MISMATCH} {
		if errors.Is(err, code) {
			return fmt.Errorf("%w: %w", collector.ErrOutdated, err)
		}
	}
	return err
}

// readsSomething reports whether a source has columns, or may have some when its
// GPU answers.
func readsSomething(s collector.Source) bool {
	_, silent := s.(*silentSource)
	return silent || len(s.Columns()) > 0
}

// hold keeps the library initialised for a call that may hang; see registry.
func (c *Collector) hold(lib *library) (release func()) {
	let := process.hold(lib)
	return func() {
		if err := let(); err != nil {
			c.o.Log.Warn("library is not let go", zap.Error(err))
		}
	}
}

// Rescan reports whether Open would find other devices.
func (c *Collector) Rescan(ctx context.Context) (bool, error) {
	c.mu.Lock()
	open, found := c.lib != nil, c.found
	c.mu.Unlock()
	if !open {
		return false, nil
	}
	changed, err := c.gpus.changed(ctx, found)
	if err != nil {
		return false, fmt.Errorf("look for GPUs: %w", outdated(err))
	}
	return changed, nil
}

// Close lets NVML go. Where a call hangs it waits for it.
func (c *Collector) Close() error {
	c.mu.Lock()
	lib, sources := c.lib, c.sources
	c.lib, c.sources = nil, nil
	c.mu.Unlock()
	for _, s := range sources {
		if s, ok := s.(*source); ok {
			s.close()
		}
	}
	if lib == nil {
		return nil
	}
	return process.release()
}
