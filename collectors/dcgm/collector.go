//go:build linux && cgo

package dcgm

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"

	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Collector reads GPUs through DCGM: one connection to a host engine from Open to Close.
type Collector struct {
	o      Options
	engine *engine // nil unless open
	fields field.List
	found  inventory
	until  map[string]int64 // by device: timestamp of the last XID that an earlier session reported

	leftOut int // devices
}

var (
	_ collector.Collector = (*Collector)(nil)
	_ collector.Rescanner = (*Collector)(nil)
	_ collector.Resumer   = (*Collector)(nil)
	_ collector.Limited   = (*Collector)(nil)
)

// New returns an unopened collector and touches nothing.
func New(o Options) *Collector { return &Collector{o: o.withDefaults()} }

// Name is "dcgm".
func (*Collector) Name() string { return "dcgm" }

// Resume sets, by device, the time until which earlier sessions have reported XIDs.
func (c *Collector) Resume(until map[string]int64) { c.until = until }

// Open connects to the engine, finds its devices and watches the fields of the list. It does not wait for values. Errors
// name the attempts and the remedy; after an error nothing is open. A hanging library call blocks Open even after ctx ends.
func (c *Collector) Open(ctx context.Context, fields field.List) ([]collector.Source, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e, err := connect(c.o)
	if err != nil {
		return nil, fmt.Errorf("open DCGM: %w", err)
	}
	sources, err := c.bind(ctx, e, fields)
	if err != nil {
		err = e.mismatched(c.o, err)
		_ = e.close() // the first error matters more
		return nil, fmt.Errorf("open DCGM: %w", err)
	}
	c.engine, c.fields = e, fields
	for _, n := range e.leftOut {
		c.leftOut += n
	}
	return sources, nil
}

// LeftOut implements collector.Limited.
func (c *Collector) LeftOut() int { return c.leftOut }

// bind builds two sources: one for the GPUs and their parts, one for everything else. So GPUs can fail over to another
// collector without the switches and CPUs.
func (c *Collector) bind(ctx context.Context, e *engine, fields field.List) (out []collector.Source, err error) {
	if c.found, err = listEntities(e, fields, c.o); err != nil {
		return nil, err
	}
	nodes, err := discover(e, c.found, fields, c.o)
	if err != nil {
		return nil, err
	}
	if len(nodes) == 0 {
		return nil, fmt.Errorf("%w: the host engine %s has no GPU, switch or CPU", collector.ErrNoDevices, c.o.engineName())
	}
	for _, n := range nodes {
		c.leftOut += n.twice
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s, err := c.sourceOf(e, n, fields.Readings())
		if err != nil {
			return nil, err
		}
		if s != nil {
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%w: the list asks for nothing that the devices of the host engine %s have", collector.ErrNothingToRead, c.o.engineName())
	}
	return out, ctx.Err()
}

// sourceOf builds the source of a node, or returns nil if the list has no field for it. It returns an error if the
// engine offers none of the list's fields.
func (c *Collector) sourceOf(e *engine, n *node, list []field.Reading) (*source, error) {
	refused := refusals{}
	r, err := newReadings(e, n, offered(e, n, list, refused), refused, c.o)
	if err != nil {
		return nil, err
	}
	x, err1 := newXIDs(e, n, r, list, refused, c.until, c.o)
	h, err2 := newHealth(e, n, r, list, refused, c.o)
	if err := cmp.Or(err1, err2); err != nil {
		return nil, err
	}
	parts := slices.DeleteFunc([]part{x, h, newPeers(e, n, r, list, c.o)}, func(p part) bool { return p == nil })
	s := newSource(n.devices, r, parts...)
	switch {
	case len(s.columns) > 0:
		s.complete(list, refused)
		return s, nil
	case len(refused) > 0:
		return nil, fmt.Errorf("%w: the host engine %s offers none of the %d fields", collector.ErrNothingToRead, c.o.engineName(), len(refused))
	}
	return nil, nil //nolint:nilnil // nil means that there is no source
}

// Close closes the connection, and with it everything that was created on it.
func (c *Collector) Close() error {
	e := c.engine
	if e == nil {
		return nil
	}
	c.engine = nil
	return e.close()
}

// Rescan reports whether the engine's devices have changed since Open: GPUs that were bound or unbound, MIG instances,
// links that went up or down. It makes no calls that the engine passes to the driver.
func (c *Collector) Rescan(ctx context.Context) (changed bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	o := c.o
	o.Log = zap.NewNop() // Open has already logged the kinds that cannot be listed
	now, err := listEntities(c.engine, c.fields, o)
	if err != nil {
		return false, fmt.Errorf("rescan DCGM: %w", err)
	}
	return !reflect.DeepEqual(c.found, now), nil
}
