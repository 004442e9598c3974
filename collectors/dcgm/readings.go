//go:build linux && cgo

package dcgm

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// readings is the part that reads numbers from the engine's cache.
type readings struct {
	engine *engine
	node   *node
	blocks []*block
	cols   []collector.Column
	buffer *scratch
	now    func() time.Time

	fresh  []freshness // by device
	counts []bool      // by device: something of it was due in this call
	moved  []bool      // by device: a time stamp differs from the one of the call before
	lost   []bool      // by device: the engine says in this call that it is lost
	hush   []hush      // by device: of this call

	reads, nanos atomic.Int64 // what the calls cost
}

var _ part = (*readings)(nil)

// newReadings watches what the list asks for. Fields that the engine refuses are
// left out and logged once. On an error nothing is left behind.
func newReadings(e *engine, far bool, n *node, list []field.Reading, o Options) (_ *readings, err error) {
	room := valuesPerCall
	if far {
		room = valuesPerFarCall
	}
	r := &readings{engine: e, node: n, now: time.Now}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	refused := map[uint16]error{}
	largest := 0
	for i, b := range blocksOf(n, list, o) {
		no, err := b.watch(e, fmt.Sprintf("warpgauge-%d-%d", nextGroup.Add(1), i))
		if err != nil {
			return nil, fmt.Errorf("watch %d fields of %d entities of kind %q: %w", len(b.fields), len(b.entities), b.kind, err)
		}
		for f, why := range no {
			refused[f] = why
		}
		if len(b.fields) == 0 {
			continue
		}
		r.blocks = append(r.blocks, b)
		b.cut(room)
		r.mapColumns(b)
		for _, c := range b.chunks {
			largest = max(largest, (c.e1-c.e0)*(c.f1-c.f0))
		}
	}
	tellRefused(o.Log, refused)
	r.buffer = newScratch(largest)
	r.settle(o)
	return r, nil
}

// nextGroup makes names of groups unique in an engine that other clients use.
var nextGroup atomic.Uint64

// mapColumns gives each cell of a block its column.
func (r *readings) mapColumns(b *block) {
	b.columns = make([]int32, len(b.cells))
	for e, place := range b.places {
		for f, id := range b.fields {
			b.columns[e*len(b.fields)+f] = int32(len(r.cols))
			r.cols = append(r.cols, collector.Column{Device: place, Field: field.ID(id)})
		}
	}
}

// settle prepares what watches over each device: its fastest block.
func (r *readings) settle(o Options) {
	n := len(r.node.devices)
	r.fresh, r.counts, r.moved, r.lost = make([]freshness, n), make([]bool, n), make([]bool, n), make([]bool, n)
	r.hush = make([]hush, n)
	fastest := make([]time.Duration, n)
	for _, b := range r.blocks {
		for _, p := range b.places {
			if fastest[p] == 0 || b.every < fastest[p] {
				fastest[p] = b.every
			}
		}
	}
	now := r.now()
	for i := range r.fresh {
		every := fastest[i]
		if every == 0 {
			every = o.Interval
		}
		r.fresh[i] = newFreshness(every, now)
	}
}

func tellRefused(log *zap.Logger, refused map[uint16]error) {
	byReason := map[string][]string{}
	for id, err := range refused {
		name := fmt.Sprint(id)
		if d, ok := field.ByID(field.ID(id)); ok {
			name = d.Name
		}
		byReason[err.Error()] = append(byReason[err.Error()], name)
	}
	for reason, names := range byReason {
		slices.Sort(names)
		log.Info("host engine does not offer fields, they are left out", zap.String("field", strings.Join(names, " ")), zap.String("err", reason))
	}
}

func (r *readings) columns() []collector.Column { return r.cols }

// sample reads every block of which something is due.
func (r *readings) sample(row []float64, due []bool) error {
	clear(r.counts)
	clear(r.moved)
	clear(r.lost)
	clear(r.hush)
	for _, b := range r.blocks {
		if !wanted(b, due) {
			continue
		}
		start := time.Now()
		err := b.read(r.engine, r.buffer)
		r.nanos.Add(int64(time.Since(start)))
		r.reads.Add(int64(len(b.chunks)))
		if err != nil {
			return fmt.Errorf("read %d fields of %d entities of kind %q: %w", len(b.fields), len(b.entities), b.kind, err)
		}
		r.take(b, row, due)
	}
	return r.judge()
}

func wanted(b *block, due []bool) bool {
	for _, c := range b.columns {
		if c >= 0 && due[c] {
			return true
		}
	}
	return false
}

// take copies the cells of a block into the row.
func (r *readings) take(b *block, row []float64, due []bool) {
	nf := len(b.fields)
	for e, place := range b.places {
		r.counts[place] = true
		newest, values, blanks := int64(0), 0, 0
		for i, c := range b.cells[e*nf : (e+1)*nf] {
			newest = max(newest, c.micros)
			switch {
			case c.status == statusLost:
				r.lost[place] = true
			case b.ofNode[i]:
			case c.status == statusOK && c.micros != 0 && math.IsNaN(c.value):
				blanks++
			case c.status == statusOK && c.micros != 0:
				values++
			}
			if at := b.columns[e*nf+i]; at >= 0 && due[at] {
				if c.micros == 0 {
					c.value = math.NaN() // never read, whatever the value says
				}
				row[at] = c.value
			}
		}
		r.hush[place].add(b, e, values, blanks, newest)
		// Each block has a clock of its own: those that are read seldom are older.
		if newest != 0 && newest != b.newest[e] {
			b.newest[e], r.moved[place] = newest, true
		}
	}
}

// judge says which devices were not really sampled.
func (r *readings) judge() error {
	var errs []error
	now := r.now()
	for i := range r.fresh {
		if !r.counts[i] {
			continue
		}
		f := &r.fresh[i]
		f.see(r.moved[i], now)
		err := f.verdict(now)
		switch {
		case r.lost[i]:
			err = statusLost
		case err == nil && r.node.entities[i].kind == kindGPU && r.hush[i].fell(f.patience/2):
			err = errFellSilent
		}
		if err != nil {
			errs = append(errs, &collector.DeviceError{Device: i, Err: err})
		}
	}
	return errors.Join(errs...)
}

func (r *readings) calls() []collector.CallCost {
	return []collector.CallCost{{
		Call: "dcgmEntitiesGetLatestValues", Count: uint64(r.reads.Load()), Time: time.Duration(r.nanos.Load()),
	}}
}

// close takes the watches back.
func (r *readings) close() {
	for _, b := range r.blocks {
		b.unwatch(r.engine)
	}
	r.blocks = nil
	if r.buffer != nil {
		r.buffer.free()
		r.buffer = nil
	}
}
