//go:build linux && cgo

package dcgm

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

const (
	xidSlots   = 4               // XIDs of a GPU that one row can tell of; more wait for the next tick
	xidPending = 256             // that wait at most; what a storm brings beyond is lost, and said to be
	xidKeep    = 5 * time.Minute // how long the engine keeps them
)

// xids supplies the event columns behind DCGM_EXP_XID_ERRORS_*. The engine keeps
// a history of the field, so that none is lost between two ticks: a time stamp
// that has moved makes it ask for everything since the one before.
type xids struct {
	engine *engine
	block  *block
	log    *zap.Logger
	cols   []collector.Column
	gpus   []xidGPU // in the order of the block's entities
	buffer *scratch

	reads, asks           atomic.Int64 // calls for the newest, and for those since
	readNanos, askedNanos atomic.Int64
}

type xidGPU struct {
	log     *xidLog
	reader  int
	last    int64     // Unix µs, of the newest that was asked for
	pending []float64 // codes that wait for a row
	lost    int
}

var _ part = (*xids)(nil)

// newXIDs watches the XIDs of a node's GPUs; nil if the list does not ask for them.
func newXIDs(s *session, n *node, list []field.Reading, o Options) (*xids, error) {
	places := n.byKind(kindGPU)
	if !asks(list, field.XIDEvent) || len(places) == 0 {
		return nil, nil
	}
	x := &xids{engine: s.engine, log: o.Log}
	x.block = &block{kind: kindGPU, every: o.Interval, keep: xidKeep, places: places, fields: []uint16{uint16(field.XIDErrors)}}
	for _, p := range places {
		x.block.entities = append(x.block.entities, n.entities[p])
	}
	refused, err := x.block.watch(s.engine, fmt.Sprintf("warpgauge-xids-%d", nextGroup.Add(1)))
	if err != nil {
		return nil, fmt.Errorf("watch XIDs: %w", err)
	}
	if len(x.block.fields) == 0 {
		tellRefused(o.Log, refused)
		return nil, nil
	}
	x.block.cut(valuesPerFarCall)
	x.buffer = newScratch(valuesPerFarCall)
	if err := x.block.read(s.engine, x.buffer); err != nil {
		x.close()
		return nil, fmt.Errorf("read XIDs: %w", err)
	}
	for i, p := range places {
		g := xidGPU{log: s.xidLog(x.block.entities[i].id)}
		g.reader, g.last = g.log.join(x.block.cells[i].micros)
		x.gpus = append(x.gpus, g)
		for slot := range xidSlots {
			x.cols = append(x.cols, collector.Column{Device: p, Field: field.XIDEvent, Labels: []collector.Label{{Name: "slot", Value: strconv.Itoa(slot)}}})
		}
	}
	return x, nil
}

func asks(list []field.Reading, id field.ID) bool {
	for _, r := range list {
		if r.Desc.ID == id {
			return true
		}
	}
	return false
}

func (x *xids) columns() []collector.Column { return x.cols }

// sample puts what is new into the row. Its cells are NaN on entry.
func (x *xids) sample(row []float64, due []bool) error {
	start := time.Now()
	err := x.block.read(x.engine, x.buffer)
	x.reads.Add(int64(len(x.block.chunks)))
	x.readNanos.Add(int64(time.Since(start)))
	if err != nil {
		return fmt.Errorf("read XIDs: %w", err)
	}
	var errs []error
	for i := range x.gpus {
		g := &x.gpus[i]
		if c := x.block.cells[i]; c.micros > g.last {
			if err := x.fetch(g, x.block.entities[i].id, c); err != nil {
				errs = append(errs, &collector.DeviceError{Device: x.block.places[i], Err: err})
			}
		}
		x.put(g, row[i*xidSlots:(i+1)*xidSlots], due[i*xidSlots:])
	}
	return errors.Join(errs...)
}

// fetch asks for what happened since the last time.
func (x *xids) fetch(g *xidGPU, gpu uint32, newest cell) error {
	if math.IsNaN(newest.value) { // read, and nothing there
		g.last = newest.micros
		return nil
	}
	start := time.Now()
	cells, err := x.engine.since(gpu, uint16(field.XIDErrors), g.last)
	x.asks.Add(1)
	x.askedNanos.Add(int64(time.Since(start)))
	if err != nil {
		return fmt.Errorf("read XIDs since %d µs: %w", g.last, err)
	}
	for _, c := range cells {
		g.last = max(g.last, c.micros)
		if math.IsNaN(c.value) || c.value < 0 || !g.log.tell(g.reader, c.micros, uint64(c.value)) {
			continue
		}
		if len(g.pending) == xidPending {
			if g.lost == 0 {
				x.log.Warn("more XIDs than rows can tell of, some are not counted", zap.Uint32("device", gpu))
			}
			g.lost++
			continue
		}
		g.pending = append(g.pending, c.value)
	}
	return nil
}

func (*xids) put(g *xidGPU, cells []float64, due []bool) {
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
	return []collector.CallCost{
		{Call: "dcgmEntitiesGetLatestValues", Count: uint64(x.reads.Load()), Time: time.Duration(x.readNanos.Load())},
		{Call: "dcgmGetMultipleValuesForField", Count: uint64(x.asks.Load()), Time: time.Duration(x.askedNanos.Load())},
	}
}

func (x *xids) close() {
	x.block.unwatch(x.engine)
	if x.buffer != nil {
		x.buffer.free()
		x.buffer = nil
	}
}
