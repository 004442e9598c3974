//go:build linux && cgo

package dcgm

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// readings is the part that reads numbers from the engine's cache.
type readings struct {
	engine *engine
	node   *node
	blocks []*block
	cols   []collector.Column
	buffer scratch
	now    func() time.Time
	cost   cost

	opened  time.Time
	devices []watched // in the order of the node's
}

// watched is what one call learns of a device, and what is known of it since Open.
type watched struct {
	fresh    freshness
	nodeOnly bool // it has no field but those of the node

	due     bool // something of it is due
	moved   bool // a time stamp differs from the one of the call before
	lost    bool // the engine says that it is lost
	blanked blanked
}

var _ part = (*readings)(nil)

// newReadings watches what the list asks for. Fields that the engine does not offer
// are left out and noted.
func newReadings(e *engine, n *node, list []field.Reading, refused refusals, o Options) (*readings, error) {
	room := valuesPerCall
	if e.remote {
		room = valuesPerRemoteCall
	}
	r := &readings{engine: e, node: n, now: time.Now, cost: cost{call: "dcgmEntitiesGetLatestValues"}}
	largest := 0
	for _, b := range blocksOf(n, list, o) {
		if err := b.watch(e, refused); err != nil {
			return nil, fmt.Errorf("watch %d fields of %d entities of kind %q: %w", len(b.fields), len(b.entities), b.kind, err)
		}
		if len(b.fields) == 0 {
			continue
		}
		b.divide(room)
		for _, c := range b.chunks {
			largest = max(largest, (c.e1-c.e0)*(c.f1-c.f0))
		}
		b.column = len(r.cols)
		for _, d := range b.devices {
			for _, id := range b.fields {
				r.cols = append(r.cols, collector.Column{Device: d, Field: field.ID(id)})
			}
		}
		r.blocks = append(r.blocks, b)
	}
	r.buffer = e.newScratch(largest)
	r.opened = r.now()
	r.watchOver(o)
	return r, nil
}

// watchOver prepares the judgement of each device, by its fastest block.
func (r *readings) watchOver(o Options) {
	r.devices = make([]watched, len(r.node.devices))
	fastest := make([]time.Duration, len(r.devices))
	for i := range r.devices {
		r.devices[i].nodeOnly = true
	}
	for _, b := range r.blocks {
		own := false
		for _, ofNode := range b.ofNode {
			own = own || !ofNode
		}
		for _, d := range b.devices {
			if fastest[d] == 0 || b.every < fastest[d] {
				fastest[d] = b.every
			}
			r.devices[d].nodeOnly = r.devices[d].nodeOnly && !own
		}
	}
	for i, every := range fastest {
		if every == 0 {
			every = o.Interval
		}
		r.devices[i].fresh = newFreshness(every, r.opened)
	}
}

func (r *readings) columns() []collector.Column { return r.cols }

// sample reads every block of which something is due. Until the engine has read
// each of them once it reports errStarting, so that no row lacks what follows a moment
// later: profiling fields come a poll after the others.
func (r *readings) sample(row []float64, due []bool) error {
	for i := range r.devices {
		d := &r.devices[i]
		d.due, d.moved, d.lost, d.blanked = false, false, false, blanked{}
	}
	starting := false
	for _, b := range r.blocks {
		if !slices.Contains(due[b.column:b.column+len(b.cells)], true) {
			continue
		}
		start := time.Now()
		err := b.read(r.engine, r.buffer)
		r.cost.add(len(b.chunks), start)
		if err != nil {
			return fmt.Errorf("read %d fields of %d entities of kind %q: %w", len(b.fields), len(b.entities), b.kind, err)
		}
		r.take(b, row, due)
		starting = starting || b.awaited(r.now().Sub(r.opened))
	}
	err := r.judge(r.now())
	if starting {
		return errStarting
	}
	return err
}

// take copies the cells of a block into the row.
func (r *readings) take(b *block, row []float64, due []bool) {
	nf := len(b.fields)
	answered, profiled := 0, false
	for e, device := range b.devices {
		d := &r.devices[device]
		d.due = true
		newest, values, blanks, read := int64(0), 0, 0, false
		for i, c := range b.cells[e*nf : (e+1)*nf] {
			read = read || c.micros != 0 || !c.status.pending()
			if c.micros == 0 {
				c.value = math.NaN() // never read, whatever the value says
			}
			if !b.ofNode[i] || d.nodeOnly {
				newest = max(newest, c.micros)
			}
			switch {
			case c.status == statusLost:
				d.lost = true
			case b.ofNode[i] || c.status != statusOK || c.micros == 0:
			case math.IsNaN(c.value):
				blanks++
			default:
				values++
			}
			if at := b.column + e*nf + i; due[at] {
				row[at] = c.value
			}
		}
		if read {
			answered++
		}
		profiled = profiled || values > 0
		d.blanked.add(b, e, values, blanks, newest)
		// Each block has its own clock: those that are read seldom are older.
		if newest != 0 && newest != b.newest[e] {
			b.newest[e], d.moved = newest, true
		}
	}
	// A GPU that is divided by MIG has no profiling values, its instances have.
	b.ready = b.ready || answered == len(b.devices) && (profiled || !profiles(field.ID(b.fields[0])))
}

// startPatience is how long the first values of a block are waited for at most.
const startPatience = 10 * time.Second

// awaited reports whether the first values of a block may still come, so long after
// Open. A GPU may never have had an XID.
func (b *block) awaited(since time.Duration) bool {
	onlyXIDs := len(b.fields) == 1 && field.ID(b.fields[0]) == field.XIDErrors
	return !b.ready && !onlyXIDs && since <= min(patience(b.every), startPatience)
}

// judge says which devices were not really sampled.
func (r *readings) judge(now time.Time) error {
	var errs []error
	for i := range r.devices {
		d := &r.devices[i]
		if !d.due {
			continue
		}
		d.fresh.see(d.moved, now)
		err := d.fresh.verdict(now)
		switch {
		case d.lost:
			err = statusLost
		case err == nil && r.node.entities[i].kind == kindGPU && d.blanked.all(d.fresh.patience/2):
			err = errBlanked
		}
		if err != nil {
			errs = append(errs, &collector.DeviceError{Device: i, Err: err})
		}
	}
	return errors.Join(errs...)
}

func (r *readings) calls() []collector.CallCost { return []collector.CallCost{r.cost.sum()} }
