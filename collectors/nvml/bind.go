//go:build linux && cgo

package nvml

import (
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// wish is a column that may come to be, and the rows of the table that are still
// to be tried for it; the first is in hand.
type wish struct {
	target
	desc *field.Descriptor
	rows []*reading
	cell cell // of the row in hand
}

// newReadings makes the part that supplies what the table has of fields: of the
// GPU raw and of targets, which are the GPU itself, its instances, its links;
// except, by device and field, what others supply already. nil where there is
// nothing of it. Everything is asked once: what a device cannot tell gets no
// column, and is named in the log. It may hang where the driver does.
// Errors: collector.ErrDeviceLost, collector.ErrOutdated.
func newReadings(l *library, raw uintptr, targets []target, fields []field.Reading, except map[place]bool, log *zap.Logger) (part, error) {
	wishes := wishesOf(targets, fields, except)
	b := &binder{lib: l, raw: raw}
	if err := b.probe(wishes); err != nil {
		b.drop()
		return nil, err
	}
	if len(b.lacking) > 0 {
		log.Info("fields that the device does not have are left out", zap.Strings("field", b.lacking))
	}
	if len(b.found) == 0 {
		b.drop()
		return nil, nil //nolint:nilnil // no part, no error
	}
	return b.part()
}

// place is a column without further labels.
type place struct {
	device int
	field  field.ID
}

// placesOf are the columns of a part; nil has none.
func placesOf(p part) map[place]bool {
	out := map[place]bool{}
	if p != nil {
		for _, c := range p.columns() {
			out[place{c.Device, c.Field}] = true
		}
	}
	return out
}

// wishesOf lists the columns that the table could make.
func wishesOf(targets []target, fields []field.Reading, except map[place]bool) []*wish {
	var out []*wish
	for _, f := range fields {
		for _, t := range targets {
			if rows := rowsAt(t.level, f.Desc.ID); len(rows) > 0 && !except[place{t.device, f.Desc.ID}] {
				out = append(out, &wish{target: t, desc: f.Desc, rows: rows})
			}
		}
	}
	return out
}

// rowsAt are the rows of a field for a device of a level: a GPU has what its
// instances have, links have what is theirs.
func rowsAt(level field.Level, id field.ID) []*reading {
	var out []*reading
	for _, r := range byField()[id] {
		at := r.levelOf()
		if at == level || at == field.Instance && level == field.GPU {
			out = append(out, r)
		}
	}
	return out
}

// binder finds out what a device has.
type binder struct {
	lib     *library
	raw     uintptr
	found   []*wish
	aside   []*wish // of nvmlDeviceGetPcieThroughput
	lacking []string
	pcie    *throughput
}

// probe asks for everything in rounds, in each for those rows that the ones
// before have turned out not to serve.
func (b *binder) probe(wishes []*wish) error {
	for len(wishes) > 0 {
		var err error
		if wishes, err = b.round(wishes); err != nil {
			return err
		}
	}
	if len(b.aside) == 0 {
		return nil
	}
	return b.measureAside()
}

// round asks for the rows in hand, and returns the wishes that have another one.
func (b *binder) round(wishes []*wish) ([]*wish, error) {
	p := newPlan(b.lib, b.raw)
	var here []*wish
	for _, w := range wishes {
		if w.rows[0].call() == getPCIeThroughput {
			b.aside = append(b.aside, w)
			continue
		}
		w.plan(p)
		here = append(here, w)
	}
	batch, err := p.batch()
	if err != nil {
		return nil, err
	}
	defer batch.close()
	for _, w := range here {
		w.cell.want(batch)
	}
	if code := batch.run(); code != nvml.SUCCESS {
		return nil, fatal(code)
	}
	var again []*wish
	for _, w := range here {
		switch {
		case w.accept(batch):
			b.found = append(b.found, w)
		case len(w.rows) > 1:
			w.rows = w.rows[1:]
			again = append(again, w)
		default:
			b.lack(w)
		}
	}
	return again, nil
}

// lack notes a field once.
func (b *binder) lack(w *wish) {
	if !slices.Contains(b.lacking, w.desc.Name) {
		b.lacking = append(b.lacking, w.desc.Name)
	}
}

// plan makes the cell of the row in hand. Terms that this library has no function
// for are left out, which accept judges.
func (w *wish) plan(p *plan) {
	r := w.rows[0]
	w.cell = cell{reading: r, whole: w.desc.Kind == field.Int64, level: w.level, speed: newSpeed()}
	for _, t := range r.terms {
		if in, ok := p.ask(t, w.raw, w.link); ok {
			in.term = t
			w.cell.inputs = append(w.cell.inputs, in)
		}
	}
}

// accept reports whether the device has the row in hand, and takes the first
// value, from which rates begin.
func (w *wish) accept(b *batch) bool {
	c := &w.cell
	complete := len(c.inputs) == len(c.terms)
	for i := 0; i < len(c.inputs); {
		in := c.inputs[i]
		_, code := b.result(in.slot)
		if never(code) || c.how == perSecondWide && code == nvml.SUCCESS && !b.wide(in.unit) {
			c.inputs = slices.Delete(c.inputs, i, i+1)
			complete = false
			continue
		}
		c.uneasy = c.uneasy || troubled(code)
		i++
	}
	if len(c.inputs) == 0 || !complete && !c.anyOf {
		return false
	}
	c.in = make([]float64, len(c.inputs))
	_, _ = c.value(b) // a value that is not to be had now may be later
	return true
}

// part makes the part, with a batch of only what is asked for from now on.
func (b *binder) part() (part, error) {
	out := &readingsPart{pcie: b.pcie}
	p := newPlan(b.lib, b.raw)
	for _, w := range b.found {
		for i, in := range w.cell.inputs {
			again, _ := p.ask(in.term, w.raw, w.link)
			again.term = in.term
			w.cell.inputs[i] = again
		}
		out.cols = append(out.cols, collector.Column{Device: w.device, Field: w.desc.ID})
		out.cells = append(out.cells, w.cell)
	}
	if len(p.asked) == 0 {
		return out, nil
	}
	batch, err := p.batch()
	if err != nil {
		b.drop()
		return nil, fmt.Errorf("bind readings: %w", err)
	}
	out.batch = batch
	out.meters = make([]meter, len(p.names))
	for i, name := range p.names {
		out.meters[i].call = name
	}
	return out, nil
}

// measureAside binds PCIe throughput.
func (b *binder) measureAside() error {
	t, has, err := newThroughput(b.lib, b.raw, b.aside)
	if err != nil {
		return err
	}
	b.pcie = t
	for i, w := range b.aside {
		if !has[i] {
			b.lack(w)
			continue
		}
		w.cell = cell{reading: w.rows[0], whole: true, level: w.level, slow: i + 1}
		b.found = append(b.found, w)
	}
	return nil
}

// drop ends what was begun.
func (b *binder) drop() {
	if b.pcie != nil {
		b.pcie.close()
	}
}
