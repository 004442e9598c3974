//go:build linux && cgo

package dcgm

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// readings is the part that reads numbers from the engine's cache. Each cell is judged by
// its own time stamp: a field, a block or a GPU that the engine reads no more is blank
// while the others stay.
type readings struct {
	engine *engine
	node   *node
	blocks []*block
	cols   []collector.Column
	buffer scratch
	now    func() time.Time
	cost   cost

	reasons collector.Absences
	blanks  blanks
	opened  time.Time
	devices []judged // in the order of the node's
}

// judged is what one call learns of a device.
type judged struct {
	read  []blockEntity // where it is read, by interval
	dated int64         // when its values were read, Unix µs; 0: not known

	due     bool // something of it is due
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
	r.prepare()
	return r, nil
}

// prepare finds by which values each device is judged: its own, or those of the node if
// it has no others.
func (r *readings) prepare() {
	r.opened, r.blanks = r.now(), newBlanks(&r.reasons)
	r.devices = make([]judged, len(r.node.devices))
	nodeOnly := slices.Repeat([]bool{true}, len(r.devices))
	for _, b := range r.blocks {
		own := slices.ContainsFunc(b.fields, func(id uint16) bool { return ofEntity(field.ID(id)) })
		for i, d := range b.devices {
			r.devices[d].read = append(r.devices[d].read, blockEntity{b, i})
			nodeOnly[d] = nodeOnly[d] && !own
		}
	}
	for _, b := range r.blocks {
		b.own = nil
		for _, d := range b.devices {
			own := make([]bool, len(b.fields))
			for i, id := range b.fields {
				own[i] = polled(field.ID(id)) && (nodeOnly[d] || ofEntity(field.ID(id)))
			}
			b.own = append(b.own, own)
		}
	}
	for i := range r.devices {
		read := &r.devices[i].read
		*read = slices.DeleteFunc(*read, func(p blockEntity) bool { return !slices.Contains(p.block.own[p.index], true) })
		slices.SortStableFunc(*read, func(a, b blockEntity) int { return cmp.Compare(a.block.every, b.block.every) })
	}
}

// ofEntity reports whether a field says something of an entity, and not of the node.
func ofEntity(id field.ID) bool {
	d, ok := field.ByID(id)
	return !ok || d.Level != field.Global
}

func (r *readings) columns() []collector.Column { return r.cols }

// sample reads every block of which something is due. Until the engine has read
// each of them once it reports errStarting, so that no row lacks what follows a moment
// later: profiling fields come a poll after the others.
func (r *readings) sample(row []float64, due []bool) error {
	for i := range r.devices {
		d := &r.devices[i]
		d.due, d.lost, d.blanked = false, false, blanked{}
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
		now := r.now()
		r.take(b, row, due, now)
		starting = starting || b.awaited(now.Sub(r.opened))
	}
	err := r.judge(r.now())
	if starting {
		return errStarting
	}
	return err
}

// since is a time in µs since Open, from 1.
func (r *readings) since(now time.Time) int64 { return now.Sub(r.opened).Microseconds() + 1 }

// take copies the cells of a block into the row, those that are gone as blanks.
func (r *readings) take(b *block, row []float64, due []bool, now time.Time) {
	nf := len(b.fields)
	this := reading{now: r.since(now), clock: now.UnixMicro(), before: b.looked, patience: patience(b.every).Microseconds()}
	b.looked = this.clock
	answered, profiled := 0, false
	for e, device := range b.devices {
		d, s := &r.devices[device], &b.states[e]
		d.due = true
		*s = state{}
		values, blanks, read := 0, 0, false
		for i, c := range b.cells[e*nf : (e+1)*nf] {
			own, seen := b.own[e][i], &b.seen[e*nf+i]
			read = read || c.micros != 0 || !c.status.pending()
			d.lost = d.lost || c.status == statusLost
			if polled(field.ID(b.fields[i])) {
				seen.see(c.micros, &this)
			}
			if own {
				s.add(seen, c.value)
			}
			switch {
			case c.micros == 0, seen.gone:
				c.value = math.NaN() // never read, or no more, whatever the value says
			case !own || c.status != statusOK:
			case math.IsNaN(c.value):
				blanks++
			default:
				values++
			}
			if at := b.column + e*nf + i; due[at] {
				if row[at] = c.value; math.IsNaN(c.value) {
					row[at] = r.blanks.of(&c, seen.gone)
				}
			}
		}
		if read {
			answered++
		}
		profiled = profiled || values > 0
		d.blanked.add(b, e, values, blanks, s.micros)
	}
	// A GPU that is divided by MIG has no profiling values, its instances have.
	b.ready = b.ready || answered == len(b.devices) && (profiled || !profiles(field.ID(b.fields[0])))
}

// startPatience is how long the first values of a block are waited for at most.
const startPatience = 10 * time.Second

// awaited reports whether the first values of a block may still come, so long after Open.
func (b *block) awaited(since time.Duration) bool {
	return !b.ready && since <= min(patience(b.every), startPatience)
}

// judge says which devices were not really sampled.
func (r *readings) judge(now time.Time) error {
	var errs []error
	for i := range r.devices {
		d := &r.devices[i]
		if !d.due || len(d.read) == 0 {
			continue
		}
		var err error
		d.dated, err = verdict(d.read, r.since(now))
		switch {
		case d.lost:
			err = statusLost
		case err == nil && r.node.entities[i].kind == kindGPU && d.blanked.all(patience(d.read[0].block.every)/2):
			err = errBlanked
		}
		if err != nil {
			errs = append(errs, &collector.DeviceError{Device: i, Err: err})
		}
	}
	return errors.Join(errs...)
}

func (r *readings) calls() []collector.CallCost { return []collector.CallCost{r.cost.sum()} }
