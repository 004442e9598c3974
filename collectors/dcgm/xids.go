//go:build linux && cgo

package dcgm

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

const (
	xidSlots   = 4               // XIDs of a GPU that one row holds; more wait for the next tick
	xidPending = 256             // that wait at most; what a storm brings beyond is lost, which is logged
	xidKeep    = 5 * time.Minute // how long the engine keeps them
)

// xids supplies the event columns behind DCGM_EXP_XID_ERRORS_*. The engine keeps
// a history of the field, so that none is lost between two ticks: a time stamp
// that has moved makes it ask for everything since the one before. XIDs from before
// Open are not reported.
type xids struct {
	engine *engine
	block  *block
	log    *zap.Logger
	cols   []collector.Column
	gpus   []xidGPU // in the order of the block's entities
	buffer scratch

	reads, histories cost
}

type xidGPU struct {
	last    int64     // Unix µs, of the newest that was read
	pending []float64 // codes that wait for a row
	lost    bool      // some were, which was logged
}

var _ part = (*xids)(nil)

// newXIDs watches the XIDs of a node's GPUs; nil if the list does not ask for them
// or the engine does not offer them.
func newXIDs(e *engine, n *node, list []field.Reading, refused refusals, o Options) (*xids, error) {
	gpus := n.byKind(kindGPU)
	if !asks(list, field.XIDEvent) || len(gpus) == 0 {
		return nil, nil
	}
	b := newBlock(n, kindGPU, o.Interval, gpus, []uint16{uint16(field.XIDErrors)})
	b.keep = xidKeep
	if err := b.watch(e, refused); err != nil {
		return nil, fmt.Errorf("watch XIDs: %w", err)
	}
	if len(b.fields) == 0 {
		return nil, nil
	}
	b.divide(valuesPerRemoteCall)
	x := &xids{engine: e, block: b, log: o.Log, buffer: e.newScratch(valuesPerRemoteCall)}
	x.reads.call, x.histories.call = "dcgmEntitiesGetLatestValues", "dcgmGetMultipleValuesForField"
	if err := b.read(e, x.buffer); err != nil {
		return nil, fmt.Errorf("read XIDs: %w", err)
	}
	for i, d := range gpus {
		x.gpus = append(x.gpus, xidGPU{last: b.cells[i].micros})
		for slot := range xidSlots {
			x.cols = append(x.cols, collector.Column{Device: d, Field: field.XIDEvent, Labels: []collector.Label{{Name: "slot", Value: strconv.Itoa(slot)}}})
		}
	}
	return x, nil
}

func asks(list []field.Reading, id field.ID) bool {
	return slices.ContainsFunc(list, func(r field.Reading) bool { return r.Desc.ID == id })
}

func (x *xids) columns() []collector.Column { return x.cols }

// sample puts what is new into the row. Its cells are NaN on entry.
func (x *xids) sample(row []float64, due []bool) error {
	start := time.Now()
	err := x.block.read(x.engine, x.buffer)
	x.reads.add(len(x.block.chunks), start)
	if err != nil {
		return fmt.Errorf("read XIDs: %w", err)
	}
	var errs []error
	for i := range x.gpus {
		g := &x.gpus[i]
		if c := x.block.cells[i]; c.micros > g.last {
			if err := x.fetch(g, x.block.entities[i].id, c); err != nil {
				errs = append(errs, &collector.DeviceError{Device: x.block.devices[i], Err: err})
			}
		}
		g.put(row[i*xidSlots:(i+1)*xidSlots], due[i*xidSlots:])
	}
	return errors.Join(errs...)
}

// fetch reads what happened since the last time.
func (x *xids) fetch(g *xidGPU, gpu uint32, newest cell) error {
	if math.IsNaN(newest.value) { // the engine has read that there is none
		g.last = newest.micros
		return nil
	}
	start := time.Now()
	cells, err := x.engine.since(gpu, uint16(field.XIDErrors), g.last)
	x.histories.add(1, start)
	if err != nil {
		return fmt.Errorf("read XIDs since %d µs: %w", g.last, err)
	}
	for _, c := range cells {
		g.last = max(g.last, c.micros)
		switch {
		case math.IsNaN(c.value) || c.value < 0:
		case len(g.pending) < xidPending:
			g.pending = append(g.pending, c.value)
		case !g.lost:
			g.lost = true
			x.log.Warn("more XIDs than rows can hold, some are not counted", zap.Uint32("device", gpu))
		}
	}
	return nil
}

// put moves codes that wait into the due cells of a row.
func (g *xidGPU) put(cells []float64, due []bool) {
	n := 0
	for i := range cells {
		if n < len(g.pending) && due[i] {
			cells[i] = g.pending[n]
			n++
		}
	}
	g.pending = append(g.pending[:0], g.pending[n:]...)
}

func (x *xids) calls() []collector.CallCost {
	return []collector.CallCost{x.reads.sum(), x.histories.sum()}
}
