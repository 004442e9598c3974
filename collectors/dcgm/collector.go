//go:build linux && cgo

package dcgm

import (
	"context"
	"fmt"
	"slices"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Collector reads GPUs through DCGM: one connection to a host engine from Open to Close.
type Collector struct {
	o      Options
	engine *engine // nil unless open
	fields field.List
	layout layout           // the engine's devices before they were bound
	until  map[string]int64 // by device: the last XID that an earlier session has reported

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

// Resume sets the timestamps up to which earlier sessions have reported XIDs.
func (c *Collector) Resume(until map[string]int64) { c.until = until }

// Open connects to the engine, finds its devices and watches the fields of the list. It does not wait for values. An
// error names the attempts and the remedy, and leaves nothing open. A library call that hangs blocks Open even after
// ctx ends.
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

// bind builds the sources: one for the GPUs and their parts, one for everything else, so that GPUs can fail over
// without switches and CPUs.
func (c *Collector) bind(ctx context.Context, e *engine, fields field.List) (out []collector.Source, err error) {
	// Read the layout first, so that the next rescan notices changes from now on.
	if c.layout, err = layoutOf(e, fields, c.o); err != nil {
		return nil, err
	}
	nodes, err := discover(e, fields, c.o)
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

// sourceOf builds the source of a node; nil if the list has no field for it. It returns an error if the engine offers
// none of the list's fields.
func (c *Collector) sourceOf(e *engine, n *node, list []field.Reading) (*source, error) {
	refused := refusals{}
	r, err := newReadings(e, n, offered(e, n, list, refused), refused, c.o)
	if err != nil {
		return nil, err
	}
	var parts []part
	x, err := newXIDs(e, n, list, refused, c.until, c.o)
	if err != nil {
		return nil, err
	}
	if x != nil {
		parts = append(parts, x)
	}
	h, err := newHealth(e, n, list, c.o)
	if err != nil {
		return nil, err
	}
	if h != nil {
		parts = append(parts, h)
	}
	if p := newPeers(e, n, list, c.o); p != nil {
		parts = append(parts, p)
	}
	past, err := newHistories(e, n, list, r.columns(), c.o)
	if err != nil {
		return nil, err
	}
	if past != nil {
		parts = append(parts, past)
	}
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

// Rescan reports whether the engine has other devices than in Open: GPUs that were bound or unbound, MIG instances,
// links that went up or down. It reads nothing that the engine would have to read from the driver.
func (c *Collector) Rescan(ctx context.Context) (changed bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	now, err := layoutOf(c.engine, c.fields, c.o)
	if err != nil {
		return false, fmt.Errorf("rescan DCGM: %w", err)
	}
	return !slices.Equal(c.layout, now), nil
}

// layout lists the engine's entities that the list needs.
type layout []located

// located is an entity with its parent and NVML's IDs of an instance.
type located struct {
	entity, parent    entity
	instance, compute uint32
}

func layoutOf(e *engine, fields field.List, o Options) (layout, error) {
	d := &discovery{e, fields, o}
	var out layout
	gpus, err := e.entities(kindGPU, !o.FakeGPUs)
	if err != nil {
		return nil, err
	}
	out = out.with(kindGPU, gpus)
	if all, err := e.hierarchy(); err == nil {
		for _, m := range all {
			out = append(out, located{m.entity, m.parent, m.instance, m.compute})
		}
	}
	if d.wants(field.Switch, field.Link) {
		if ids, err := e.entities(kindSwitch, false); err == nil {
			out = out.with(kindSwitch, ids)
		}
	}
	if d.wants(field.Link) {
		if all, err := e.linkStates(); err == nil {
			out = out.withLinks(all)
		}
	}
	if d.wants(field.CPU, field.Core) {
		if all, err := e.cpus(); err == nil {
			for _, c := range all {
				out = append(out, located{entity: entity{kindCPU, c.id}, instance: uint32(len(c.cores))})
			}
		}
	}
	if d.wants(field.ConnectX) {
		if ids, err := e.entities(kindConnectX, false); err == nil {
			out = out.with(kindConnectX, ids)
		}
	}
	return out, nil
}

func (l layout) with(k entityKind, ids []uint32) layout {
	for _, id := range ids {
		l = append(l, located{entity: entity{k, id}})
	}
	return l
}

func (l layout) withLinks(all []links) layout {
	for _, owner := range all {
		for number, state := range owner.states {
			if state == linkUp {
				l = append(l, located{entity: entity{kindLink, linkID(owner.owner, number)}, parent: owner.owner})
			}
		}
	}
	return l
}
