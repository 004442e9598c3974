//go:build linux && cgo

package dcgm

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

var _ collector.Rescanner = (*Collector)(nil)

// Rescan looks whether the engine has other devices than at Open: GPUs that were
// bound or unbound, MIG instances, links that went up or down. It asks for nothing
// that the engine would have to ask the driver for. While one look hangs no second
// one is begun.
func (c *Collector) Rescan(ctx context.Context) (changed bool, err error) {
	c.mu.Lock()
	s, before, fields := c.session, c.layout, c.fields
	c.mu.Unlock()
	if s == nil || s.broken.Load() {
		return false, nil
	}
	if !c.looking.CompareAndSwap(false, true) {
		return false, errors.New("rescan DCGM: the host engine has not answered the last one")
	}
	if err := s.home.hold(ctx, s); err != nil {
		c.looking.Store(false)
		return false, fmt.Errorf("rescan DCGM: %w", err)
	}
	type result struct {
		layout layout
		err    error
	}
	done := make(chan result, 1)
	go func() {
		l, err := lay(s.engine, fields, c.o)
		c.looking.Store(false)
		done <- result{l, errors.Join(err, s.home.release(s))}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return false, fmt.Errorf("rescan DCGM: %w", r.err)
		}
		return !slices.Equal(before, r.layout), nil
	case <-ctx.Done():
		return false, fmt.Errorf("rescan DCGM: the host engine does not answer: %w", ctx.Err())
	}
}

// layout is which entities an engine has, as far as a list asks for them.
type layout []place

// place is an entity, what it belongs to, and NVML's ids of an instance.
type place struct {
	entity, parent    entity
	instance, compute uint32
}

// lay asks for it.
func lay(e *engine, fields field.List, o Options) (layout, error) {
	d := &discovery{e, fields, o}
	var out layout
	gpus, err := e.entities(kindGPU, !o.FakeGPUs)
	if err != nil {
		return nil, err
	}
	out = out.with(kindGPU, gpus)
	if all, err := e.hierarchy(); err == nil {
		for _, m := range all {
			out = append(out, place{m.entity, m.parent, m.instance, m.compute})
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
				out = append(out, place{entity: entity{kindCPU, c.id}, instance: uint32(len(c.cores))})
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
		l = append(l, place{entity: entity{k, id}})
	}
	return l
}

func (l layout) withLinks(all []links) layout {
	for _, owner := range all {
		for number, state := range owner.states {
			if state == linkUp {
				l = append(l, place{entity: entity{kindLink, linkID(owner.owner, number)}, parent: owner.owner})
			}
		}
	}
	return l
}
