//go:build linux && cgo

package nvml

import (
	"fmt"
	"math"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// readingsPart supplies the fields of the table of readings for a GPU, its instances and links.
type readingsPart struct {
	columnList
	cells []cell
	batch *batch
	why   *reasons
}

// cell computes one column.
type cell struct {
	*reading
	inputs []input
	in     []float64 // values of inputs
	whole  bool
	level  field.Level
	uneasy bool // its first answer also was a failure of the whole GPU
	climb  climb
	speed  speed
	wide   bool    // the counter has exceeded 32 bits
	none   float64 // value for a blank although NVML answered
}

func (p *readingsPart) sample(row []float64, due []bool) error {
	p.batch.clear()
	for i := range p.cells {
		if due[i] {
			p.cells[i].want(p.batch)
		}
	}
	if code := p.batch.run(); code != nvml.SUCCESS {
		return fatal("read the fields", code)
	}
	return p.fill(row, due)
}

// want marks the cell's inputs as due.
func (c *cell) want(b *batch) {
	for _, in := range c.inputs {
		if in.field {
			b.fields[in.unit].due = true
		} else {
			b.calls[in.unit].due = true
		}
	}
}

// fill writes the due cells. If every answer is a failure of the GPU rather than of the call, fill returns an error.
func (p *readingsPart) fill(row []float64, due []bool) error {
	answers := 0
	var trouble nvml.Return
	for i := range p.cells {
		c := &p.cells[i]
		if !due[i] {
			continue
		}
		v, code := c.value(p.batch)
		switch {
		case !math.IsNaN(v):
		case code == nvml.SUCCESS:
			v = c.none
		default:
			v = p.why.blank(code)
		}
		row[i] = v
		switch {
		case c.level == field.Instance && (code == nvml.ERROR_INVALID_ARGUMENT || code == nvml.ERROR_NOT_FOUND): // it no longer exists
			return fmt.Errorf("device %d: %w: %w", p.cols[i].Device, collector.ErrColumnsChanged, code)
		case !troubled(code):
			answers++
		case !c.uneasy:
			trouble = code
		}
	}
	if answers == 0 && trouble != nvml.SUCCESS {
		return fmt.Errorf("no call is answered: %w", trouble)
	}
	return nil
}

// value computes the cell's value. The code is the first failed input's.
func (c *cell) value(b *batch) (float64, nvml.Return) {
	for i, in := range c.inputs {
		v, code := b.result(in)
		if code != nvml.SUCCESS {
			return math.NaN(), code
		}
		c.in[i] = v
	}
	v := c.in[0]
	if c.how != asIs || len(c.in) > 1 {
		v = c.how.apply(c.in)
	}
	switch c.how {
	case climbing:
		v, _ = c.climb.update(v)
	case climbingWide:
		c.wide = c.wide || v > math.MaxUint32
		v, _ = c.climb.update(v)
	case perSecond:
		v = c.speed.update(v, c.moment(b))
	case perSecondWide:
		c.wide = c.wide || v > math.MaxUint32
		v = c.speed.update(v, c.moment(b))
	}
	if c.mayWrap() && !c.wide {
		v = math.NaN()
	}
	return c.scale(v, c.whole), nvml.SUCCESS
}

// mayWrap reports whether the cell's counter may be too narrow to follow.
func (c *cell) mayWrap() bool { return c.how == climbingWide || c.how == perSecondWide }

// moment returns when the newest of the cell's inputs was read.
func (c *cell) moment(b *batch) moment {
	var m moment
	for _, in := range c.inputs {
		if in.field {
			m = moment{max(m.driver, b.fields[in.unit].stamp), int64(b.at)}
		}
	}
	return m
}

// candidate is a possible column with the table rows that are still to be tried. The first row is the current one.
type candidate struct {
	target
	desc *field.Descriptor
	rows []*reading
	cell cell // of the current row
	// lacks is why the device does not support the current row.
	lacks collector.Explanation
}

// columnID identifies a column without further labels.
type columnID struct {
	device int
	field  field.ID
}

// columnIDs returns the columns of a part; nil has none.
func columnIDs(p part) map[columnID]bool {
	out := map[columnID]bool{}
	if p != nil {
		for _, c := range p.columns() {
			out[columnID{c.Device, c.Field}] = true
		}
	}
	return out
}

// newReadings returns a part that polls fields on gpu and targets: the GPU itself, its instances and links. It
// skips the columns in except, which other parts supply. It returns nil if nothing is left. It makes each call once:
// fields that the device does not support get no column, and why records the reason. It may hang when the driver does.
// Errors: collector.ErrDeviceLost, collector.ErrOutdated.
func newReadings(gpu device, targets []target, fields []field.Reading, except map[columnID]bool, why *reasons, c *costs) (part, error) {
	b := &binder{gpu: gpu, why: why, costs: c}
	for rest := candidates(targets, fields, except); len(rest) > 0; {
		var err error
		if rest, err = b.round(rest); err != nil {
			return nil, err
		}
	}
	if len(b.found) == 0 {
		return nil, nil //nolint:nilnil // no part, no error
	}
	return b.part(), nil
}

// candidates lists the columns that the table could supply.
func candidates(targets []target, fields []field.Reading, except map[columnID]bool) []*candidate {
	var out []*candidate
	for _, f := range fields {
		for _, t := range targets {
			if except[columnID{t.device, f.Desc.ID}] {
				continue
			}
			for _, rows := range rowsAt(t.level, f.Desc.ID) {
				out = append(out, &candidate{target: t, desc: f.Desc, rows: rows})
			}
		}
	}
	return out
}

// rowsAt returns a field's table rows for a level, grouped by label. Instance rows also apply to GPUs; link rows apply
// only to links.
func rowsAt(level field.Level, id field.ID) [][]*reading {
	var out [][]*reading
	for _, r := range byField()[id] {
		if at := r.levelOf(); at != level && (at != field.Instance || level != field.GPU) {
			continue
		}
		i := slices.IndexFunc(out, func(rows []*reading) bool { return rows[0].label == r.label })
		if i < 0 {
			i = len(out)
			out = append(out, nil)
		}
		out[i] = append(out[i], r)
	}
	return out
}

// binder finds out which readings a device supports.
type binder struct {
	gpu   device
	why   *reasons
	costs *costs
	found []*candidate
}

// round tries the current rows and returns the candidates that have another row to try.
func (b *binder) round(all []*candidate) ([]*candidate, error) {
	batch := newBatch(b.gpu, nil)
	for _, c := range all {
		c.plan(batch, b.why)
		c.cell.want(batch)
	}
	if code := batch.run(); code != nvml.SUCCESS {
		return nil, fatal("read the fields", code)
	}
	var again []*candidate
	for _, c := range all {
		switch {
		case c.accept(batch, b.why):
			b.found = append(b.found, c)
			continue
		case len(c.rows) > 1:
			c.rows = c.rows[1:]
			again = append(again, c)
		}
		b.why.Note(c.device, c.desc.ID, c.lacks)
	}
	return again, nil
}

// plan makes the current row's cell, without terms whose function the library lacks; see accept.
func (c *candidate) plan(b *batch, why *reasons) {
	r := c.rows[0]
	c.cell = cell{reading: r, whole: c.desc.Kind == field.Int64, level: c.level, speed: speed{rate: math.NaN()}}
	c.lacks = collector.Explanation{}
	for _, t := range r.terms {
		if in, ok := b.planTerm(t, c.reader, c.link); ok {
			c.cell.inputs = append(c.cell.inputs, in)
		} else if c.lacks.Reason == "" {
			c.lacks = why.lacking(t)
		}
	}
}

// accept reports whether the device supports the current row, and reads the first value, where rates start.
func (c *candidate) accept(b *batch, why *reasons) bool {
	cell := &c.cell
	complete := len(cell.inputs) == len(cell.terms)
	cell.inputs = slices.DeleteFunc(cell.inputs, func(in input) bool {
		_, code := b.result(in)
		if never(code) || cell.mayWrap() && code == nvml.SUCCESS && !b.fields[in.unit].wide {
			complete = false
			switch {
			case c.lacks.Reason != "":
			case never(code):
				c.lacks = why.refused(in.term, code)
			default:
				c.lacks = collector.Explanation{Reason: collector.ReasonUnsupported, Detail: "the driver's counter may wrap at 2^32 within a second"}
			}
			return true
		}
		cell.uneasy = cell.uneasy || troubled(code)
		return false
	})
	if len(cell.inputs) == 0 || !complete && !cell.anyOf {
		return false
	}
	cell.in, cell.none = make([]float64, len(cell.inputs)), why.none(cell.reading)
	_, _ = cell.value(b) // a value that is missing now may appear later
	return true
}

// part builds the part, with a batch that makes only the calls of the accepted rows.
func (b *binder) part() *readingsPart {
	out := &readingsPart{batch: newBatch(b.gpu, b.costs), why: b.why}
	for _, c := range b.found {
		for i, in := range c.cell.inputs {
			c.cell.inputs[i], _ = out.batch.planTerm(in.term, c.reader, c.link)
		}
		column := collector.Column{Device: c.device, Field: c.desc.ID}
		if c.cell.label.Name != "" {
			column.Labels = []collector.Label{c.cell.label}
		}
		out.cols = append(out.cols, column)
		out.cells = append(out.cells, c.cell)
	}
	return out
}

// fatal returns an error if a call's answer concerns the whole GPU or driver, nil for all other answers.
func fatal(call string, code nvml.Return) error {
	switch {
	case lost(code):
		return gpuError(call, code)
	case isFatal(code):
		return fmt.Errorf("%w: %s: %w", collector.ErrOutdated, call, code)
	}
	return nil
}

// isFatal reports whether an answer concerns every call: further calls are useless, and on a GPU that is gone each may
// take long.
func isFatal(code nvml.Return) bool {
	return slices.Contains([]nvml.Return{
		nvml.ERROR_UNINITIALIZED, nvml.ERROR_DRIVER_NOT_LOADED, nvml.ERROR_GPU_IS_LOST, nvml.ERROR_RESET_REQUIRED, nvml.ERROR_LIB_RM_VERSION_MISMATCH,
	}, code)
}

// troubled reports whether a crashed GPU or driver answers every call with this code, unlike a code that concerns one
// unsupported call.
func troubled(code nvml.Return) bool {
	return slices.Contains([]nvml.Return{nvml.ERROR_UNKNOWN, nvml.ERROR_TIMEOUT, nvml.ERROR_IRQ_ISSUE, nvml.ERROR_OPERATING_SYSTEM}, code)
}

// never reports whether a code means that the device does not support the reading: an unsupported call, a field that
// this driver does not know, a link that does not exist.
func never(code nvml.Return) bool {
	return slices.Contains([]nvml.Return{
		nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_ARGUMENT_VERSION_MISMATCH, nvml.ERROR_DEPRECATED,
	}, code)
}
