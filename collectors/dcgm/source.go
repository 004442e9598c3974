//go:build linux && cgo

package dcgm

import (
	"errors"
	"fmt"

	"warpgauge/pkg/collector"
)

// source is everything that one engine tells: parts side by side.
type source struct {
	session *session
	devices []collector.Device
	columns []collector.Column
	parts   []part
	from    []int // by part: its first column; one more than parts
}

var (
	_ collector.Source    = (*source)(nil)
	_ collector.CallMeter = (*source)(nil)
)

func newSource(s *session, devices []collector.Device, parts ...part) *source {
	out := &source{session: s, devices: devices, parts: parts, from: []int{0}}
	for _, p := range parts {
		out.columns = append(out.columns, p.columns()...)
		out.from = append(out.from, len(out.columns))
	}
	return out
}

func (s *source) Devices() []collector.Device { return s.devices }
func (s *source) Columns() []collector.Column { return s.columns }

// Sample asks the parts one after the other. Once the connection is lost nothing
// of it works again: all devices fail, and the collector is opened anew.
func (s *source) Sample(row []float64, due []bool) error {
	var errs []error
	for i, p := range s.parts {
		from, to := s.from[i], s.from[i+1]
		err := p.sample(row[from:to:to], due[from:to:to])
		if err == nil {
			continue
		}
		if severed(err) {
			s.session.lose()
			return fmt.Errorf("%w: %w", collector.ErrColumnsChanged, err)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (s *source) Calls() (out []collector.CallCost) {
	for _, p := range s.parts {
		out = append(out, p.calls()...)
	}
	return out
}

func (s *source) close() {
	for _, p := range s.parts {
		p.close()
	}
}
