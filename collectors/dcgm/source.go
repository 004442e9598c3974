//go:build linux && cgo

package dcgm

import (
	"errors"
	"fmt"
	"math"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/collector"
)

// part supplies some columns of a source. Only the source's goroutine calls sample.
type part interface {
	// columns never changes. Device is the index in the source's devices.
	columns() []collector.Column

	// sample fills the due cells; row[i] and due[i] belong to columns()[i]. An unavailable value is NaN. An error
	// concerns all devices of the source, unless it is a collector.DeviceError.
	sample(row []float64, due []bool) error

	// calls returns the cost of the part's library calls since Open. It may run concurrently with sample and does not
	// wait for it.
	calls() []collector.CallCost
}

// partBase holds a part's columns and the cost of its calls. The cost can be read while the part samples.
type partBase struct {
	cols []collector.Column
	cost collector.Meter

	log    *zap.Logger
	failed bool    // the last call failed, and that was logged
	blanks *blanks // nil for parts that need none
	none   float64 // the blank for a value that the last call did not give
}

func (p *partBase) columns() []collector.Column { return p.cols }
func (p *partBase) calls() []collector.CallCost { return []collector.CallCost{p.cost.Cost()} }

// try makes an optional call. It logs the first of consecutive failures and returns an error only if the connection is
// lost. failed reports whether the call failed.
func (p *partBase) try(message string, call func() error) error {
	start := p.cost.Begin()
	err := call()
	p.cost.Record(1, start)
	if severed(err) {
		return err
	}
	if err != nil && !p.failed {
		p.log.Warn(message, zap.Error(err))
	}
	p.failed, p.none = err != nil, math.NaN()
	if s, known := errors.AsType[status](err); known && p.blanks != nil {
		p.none = p.blanks.placeholder(&cell{status: s}, false)
	}
	return nil
}

// source reads the devices of one node from one engine. A hanging GPU delays all of them, because the engine reads
// all GPUs in one thread.
type source struct {
	devices []collector.Device
	columns []collector.Column
	values  *readings // one of the parts
	parts   []part
	from    []int // by part: its first column; the last entry is the number of columns
	*collector.Absences
}

var (
	_ collector.Source    = (*source)(nil)
	_ collector.CallMeter = (*source)(nil)
	_ collector.Dater     = (*source)(nil)
	_ collector.Explainer = (*source)(nil)
)

func newSource(devices []collector.Device, values *readings, more ...part) *source {
	parts := append([]part{values}, more...)
	out := &source{devices: devices, values: values, parts: parts, from: []int{0}, Absences: &values.reasons}
	for _, p := range parts {
		out.columns = append(out.columns, p.columns()...)
		out.from = append(out.from, len(out.columns))
	}
	return out
}

func (s *source) Devices() []collector.Device { return s.devices }
func (s *source) Columns() []collector.Column { return s.columns }

// Dated returns when the engine read the values of a device.
func (s *source) Dated(device int) int64 {
	return s.values.devices[device].dated * int64(time.Microsecond)
}

// Sample samples the parts in turn. When the connection is lost, all devices fail and the session ends. Without values,
// as at the start, events wait for the next row.
func (s *source) Sample(row []float64, due []bool) error {
	var errs []error
	for i, p := range s.parts {
		from, to := s.from[i], s.from[i+1]
		err := p.sample(row[from:to:to], due[from:to:to])
		switch {
		case severed(err):
			return fmt.Errorf("%w: %w: %w", collector.ErrColumnsChanged, collector.ErrNotLoaded, err)
		case errors.Is(err, errStarting), errors.Is(err, errUnread):
			return err
		case err != nil:
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (s *source) Calls() (out []collector.CallCost) {
	for _, p := range s.parts {
		out = append(out, p.calls()...)
	}
	return out
}
