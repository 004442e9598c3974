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

// readings reads numbers from the engine's cache. Each cell has its own timestamp: a field, a block or a GPU that the
// engine no longer polls becomes blank, while the others stay.
type readings struct {
	partBase
	engine *engine
	node   *node
	blocks []*block
	reads  []*batch // of the blocks and of others, see add
	buffer scratch
	now    func() time.Time

	reasons collector.Absences
	blanks  blanks
	opened  time.Time
	devices []judged // in the order of the node's devices
}

// judged is the state of a device in one sample.
type judged struct {
	read  []blockEntity // its blocks, shortest interval first
	dated int64         // when its values were read, Unix µs; 0 if unknown

	due     bool // one of its cells is due
	lost    bool // the engine reports it as lost
	round   int  // counts the engine's passes over the device's cells; a repeated cell begins the next pass
	blanked blanked
}

// newReadings watches the fields of the list. It records fields that the engine does not offer in refused.
func newReadings(e *engine, n *node, list []field.Reading, refused refusals, o Options) (*readings, error) {
	r := &readings{engine: e, node: n, now: time.Now, buffer: e.newScratch(e.room)}
	r.cost.Call = "dcgmEntitiesGetLatestValues"
	for _, b := range blocksOf(n, list, o) {
		if err := b.watch(e, refused); err != nil {
			return nil, fmt.Errorf("watch %d fields of %d entities of kind %q: %w", len(b.fields), len(b.entities), b.kind, err)
		}
		if len(b.fields) == 0 {
			continue
		}
		b.column = len(r.cols)
		r.add(b)
		for _, d := range b.devices {
			for _, id := range b.fields {
				r.cols = append(r.cols, collector.Column{Device: d, Field: field.ID(id)})
			}
		}
		r.blocks = append(r.blocks, b)
	}
	r.prepare()
	return r, nil
}

// add makes sample read a block.
func (r *readings) add(b *block) {
	blocks := []*block{b}
	if i := slices.IndexFunc(r.reads, func(x *batch) bool {
		first := x.blocks[0]
		return first.every == b.every && slices.Equal(first.entities, b.entities) && len(x.fields)+len(b.fields) <= maxFieldsPerGroup
	}); i >= 0 {
		blocks = append(r.reads[i].blocks, b)
		r.reads = slices.Delete(r.reads, i, i+1)
	}
	r.reads = append(r.reads, newBatch(r.engine.room, blocks...))
}

// prepare selects the values that show whether the engine polls a device: its own, or the node's if it has no others.
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

// ofEntity reports whether a field belongs to an entity rather than to the node.
func ofEntity(id field.ID) bool {
	d, ok := field.ByID(id)
	return !ok || d.Level != field.Global
}

// sample reads every block with due cells. Until the engine has read each block once, sample returns errStarting, because
// profiling fields arrive one poll after the others and the first row would lack them.
func (r *readings) sample(row []float64, due []bool) error {
	for i := range r.devices {
		d := &r.devices[i]
		d.due, d.lost, d.blanked = false, false, blanked{}
	}
	starting := false
	for _, x := range r.reads {
		if !slices.ContainsFunc(x.blocks, func(b *block) bool { return b.due(due) }) {
			continue
		}
		if err := x.read(r.engine, r.buffer, &r.cost); err != nil {
			b := x.blocks[0]
			return fmt.Errorf("%w: %d fields of %d entities of kind %q: %w", errUnread, len(x.fields), len(b.entities), b.kind, err)
		}
		now := r.now()
		for _, b := range x.blocks {
			if b.column >= 0 && b.due(due) {
				r.look(b, now)
				starting = starting || !b.ready && now.Sub(r.opened) <= min(patience(b.every), startPatience)
			}
		}
	}
	err := r.deviceErrors(r.now())
	if starting {
		return errStarting
	}
	for _, b := range r.blocks {
		r.copyCells(b, row, due)
	}
	return err
}

// since returns a time in µs since Open, starting at 1.
func (r *readings) since(now time.Time) int64 { return now.Sub(r.opened).Microseconds() + 1 }

// look updates the states of a block's entities from its timestamps and values.
func (r *readings) look(b *block, now time.Time) {
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
			if polled(field.ID(b.fields[i])) && seen.see(c.micros, &this) {
				if own && seen.round == d.round {
					d.round++
				}
				seen.round = d.round
			}
			if own {
				s.mergeCell(seen, c.value)
			}
			switch {
			case c.micros == 0, seen.gone, !own, c.status != statusOK:
			case math.IsNaN(c.value):
				blanks++
			default:
				values++
			}
		}
		if read {
			answered++
		}
		profiled = profiled || values > 0
		d.blanked.addBlock(b, e, values, blanks, s.micros)
	}
	// A GPU with MIG has no profiling values; its instances have them.
	b.ready = b.ready || answered == len(b.devices) && (profiled || !field.ID(b.fields[0]).Profiling())
}

// skippedRounds is how many rounds without a cell show that the engine skips it. The engine reads some cells twice in one
// poll.
const skippedRounds = 3

// copyCells copies the due cells of a block into the row. A cell with a frozen timestamp becomes blank if the engine has
// read other cells of the device several times since. Otherwise driver calls hang or are slow, so the last value stays
// and its age grows.
func (r *readings) copyCells(b *block, row []float64, due []bool) {
	for at, c := range b.cells {
		seen := &b.seen[at]
		skipped := seen.gone && r.devices[b.devices[at/len(b.fields)]].round >= seen.round+skippedRounds
		switch {
		case !due[b.column+at], seen.gone && !skipped:
			continue
		case skipped, c.micros == 0: // no longer polled, or never read
			c.value = math.NaN()
		}
		if row[b.column+at] = c.value; math.IsNaN(c.value) {
			row[b.column+at] = r.blanks.placeholder(&c, skipped)
		}
	}
}

// startPatience is the maximum time to wait for the first values of a block.
const startPatience = 10 * time.Second

// deviceErrors returns an error for each device without fresh values.
func (r *readings) deviceErrors(now time.Time) error {
	var errs []error
	for i := range r.devices {
		d := &r.devices[i]
		if !d.due || len(d.read) == 0 {
			continue
		}
		var err error
		d.dated, err = pollTime(d.read, r.since(now))
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
