//go:build linux && cgo

package nvml

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// readingsPart supplies what is in the table of readings: of a GPU, its instances
// and its links. Each sample is one crossing into C.
type readingsPart struct {
	cols   []collector.Column
	cells  []cell
	batch  *batch // nil where there is nothing to ask
	meters []meter
	pcie   *throughput // what is asked beside; nil if nothing is
}

var _ part = (*readingsPart)(nil)

// cell is how a column is made.
type cell struct {
	*reading
	inputs []input
	in     []float64 // their results
	whole  bool
	level  field.Level
	uneasy bool // answered with a trouble when it was bound, too
	climb  climb
	speed  speed
	slow   int // index into throughput's columns + 1; 0 if it is asked here
}

// input is one result that a cell is made of, and which call or value of the batch
// gives it.
type input struct {
	term       term
	slot, unit int
	isValue    bool
}

// meter counts what one kind of call has cost.
type meter struct {
	call         string
	count, nanos atomic.Uint64
}

func (p *readingsPart) columns() []collector.Column { return p.cols }

func (p *readingsPart) sample(row []float64, due []bool) error {
	if p.batch == nil {
		return p.beside(row, due)
	}
	p.batch.clear()
	for i := range p.cells {
		if due[i] {
			p.cells[i].want(p.batch)
		}
	}
	code := p.batch.run()
	p.count()
	if code != nvml.SUCCESS {
		return fatal(code)
	}
	if err := p.read(row, due); err != nil {
		return err
	}
	return p.beside(row, due)
}

// count adds what the newest run has cost.
func (p *readingsPart) count() {
	for i := range p.meters {
		if n, d := p.batch.cost(i); n > 0 {
			p.meters[i].count.Add(n)
			p.meters[i].nanos.Add(d)
		}
	}
}

// want marks what a cell needs as due.
func (c *cell) want(b *batch) {
	for i := range c.inputs {
		if in := &c.inputs[i]; in.isValue {
			b.wantValue(in.unit)
		} else {
			b.wantCall(in.unit)
		}
	}
}

// read fills the due cells. Where every answer is a trouble of the kind that
// concerns the GPU rather than a call, it is an error.
func (p *readingsPart) read(row []float64, due []bool) error {
	answers := 0
	var trouble nvml.Return
	for i := range p.cells {
		c := &p.cells[i]
		if !due[i] || c.slow > 0 {
			continue
		}
		v, code := c.value(p.batch)
		row[i] = v
		switch {
		case (c.level == field.Instance || c.level == field.VGPU) && gone(code):
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

// value makes the cell's value. The code is that of the first input that has none.
func (c *cell) value(b *batch) (float64, nvml.Return) {
	for i := range c.inputs {
		v, code := b.result(c.inputs[i].slot)
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
		v, _ = c.climb.take(v)
	case perSecond, perSecondWide:
		v = c.speed.take(v, c.moment(b))
	}
	return c.scale(v, c.whole), nvml.SUCCESS
}

// moment is when the newest of the cell's inputs was read.
func (c *cell) moment(b *batch) moment {
	var m moment
	for _, in := range c.inputs {
		if in.isValue {
			driver, own := b.stamp(in.unit)
			m = moment{max(m.driver, driver), own}
		}
	}
	return m
}

// beside fills the cells that another goroutine asks for.
func (p *readingsPart) beside(row []float64, due []bool) error {
	if p.pcie == nil {
		return nil
	}
	wanted := false
	now := time.Now()
	for i := range p.cells {
		if c := &p.cells[i]; c.slow > 0 && due[i] {
			row[i] = p.pcie.newest(c.slow-1, now)
			wanted = true
		}
	}
	if !wanted {
		return nil
	}
	p.pcie.measure(now)
	if code := p.pcie.trouble(); code != nvml.SUCCESS {
		return fatal(code)
	}
	return nil
}

func (p *readingsPart) calls() []collector.CallCost {
	var out []collector.CallCost
	for i := range p.meters {
		m := &p.meters[i]
		out = append(out, collector.CallCost{Call: m.call, Count: m.count.Load(), Time: time.Duration(m.nanos.Load())})
	}
	if p.pcie != nil {
		out = append(out, p.pcie.cost())
	}
	return out
}

func (p *readingsPart) close() {
	if p.pcie != nil {
		p.pcie.close()
	}
	if p.batch != nil {
		p.batch.close()
		p.batch = nil
	}
}

// fatal makes an error of an answer that concerns every call.
func fatal(code nvml.Return) error {
	if code == nvml.ERROR_GPU_IS_LOST || code == nvml.ERROR_RESET_REQUIRED {
		return fmt.Errorf("%w: %w", collector.ErrDeviceLost, code)
	}
	return fmt.Errorf("%w: %w", collector.ErrOutdated, code)
}

// isFatal is fatal() of batch.c.
func isFatal(code nvml.Return) bool {
	switch code {
	case nvml.ERROR_UNINITIALIZED, nvml.ERROR_DRIVER_NOT_LOADED, nvml.ERROR_GPU_IS_LOST, nvml.ERROR_RESET_REQUIRED, nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return true
	}
	return false
}

// troubled reports whether a code is of the kind that a GPU or driver answers to
// everything when it has crashed, rather than of a call that it does not serve.
func troubled(code nvml.Return) bool {
	switch code {
	case nvml.ERROR_UNKNOWN, nvml.ERROR_TIMEOUT, nvml.ERROR_IRQ_ISSUE, nvml.ERROR_OPERATING_SYSTEM:
		return true
	}
	return false
}

// gone reports whether a code says that an instance is no more.
func gone(code nvml.Return) bool {
	return code == nvml.ERROR_INVALID_ARGUMENT || code == nvml.ERROR_NOT_FOUND
}

// never reports whether a code says that the device does not have what was asked
// for: a call that is not served, a field that this driver does not know, a link
// that does not exist.
func never(code nvml.Return) bool {
	switch code {
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND, nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_ARGUMENT_VERSION_MISMATCH, nvml.ERROR_DEPRECATED:
		return true
	}
	return false
}
