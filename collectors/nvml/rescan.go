//go:build linux && cgo

package nvml

import (
	"context"

	"warpgauge/pkg/collector"
)

// inventory is what Open found, for the question whether it would find something
// else now.
type inventory map[string]entry // by the ID of the GPU

// entry is what can change of a GPU that stays.
type entry struct {
	index    int
	answered bool
	layout   uint64
}

func takeInventory(gpus []*gpu) inventory {
	out := inventory{}
	for _, g := range gpus {
		out[g.device.ID] = entry{g.index, g.err == nil, g.layout}
	}
	return out
}

// differs reports whether a new Open is of use: GPUs came or went, have another
// index, answer again or are partitioned anew. That a GPU has stopped answering is
// for its source to say; there is nothing new to open.
func (v inventory) differs(now inventory) bool {
	if len(v) != len(now) {
		return true
	}
	for id, was := range v {
		is, there := now[id]
		switch {
		case !there || is.index != was.index:
			return true
		case !is.answered:
		case !was.answered || is.layout != was.layout && is.layout != 0:
			return true
		}
	}
	return false
}

// changed is Rescan: whether Open would find other devices than before. It makes a
// few calls per GPU, none of which sets anything.
func (d *discovery) changed(ctx context.Context, before inventory) (bool, error) {
	now, err := d.gpus(ctx)
	if err != nil {
		return false, err
	}
	return before.differs(takeInventory(now)), nil
}

// migWatch sees that a GPU is partitioned anew. The handle of a MIG device that
// was destroyed may serve the next one, so errors alone do not tell.
type migWatch struct {
	ask    func() uint64
	layout uint64
}

// newMIGWatch returns nil for a GPU that cannot be partitioned.
func (l *library) newMIGWatch(g *gpu) *migWatch {
	if !g.migCapable {
		return nil
	}
	ask := l.layoutCall(g.raw)
	if ask == nil {
		return nil
	}
	return &migWatch{ask: ask, layout: g.layout}
}

// changed reports whether the GPU is partitioned otherwise than at discovery.
func (w *migWatch) changed() bool {
	if w == nil {
		return false
	}
	now := w.ask()
	return now != 0 && now != w.layout
}

// err is collector.ErrColumnsChanged if the GPU is partitioned anew, else nil.
func (w *migWatch) err() error {
	if w.changed() {
		return collector.ErrColumnsChanged
	}
	return nil
}
