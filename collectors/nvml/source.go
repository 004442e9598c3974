//go:build linux && cgo

package nvml

import (
	"errors"
	"fmt"

	"warpgauge/pkg/collector"
)

// source is a GPU with its instances and links, sampled part by part.
type source struct {
	devices []collector.Device
	cols    []collector.Column
	parts   []span
}

// span is a part and where its cells are in the row.
type span struct {
	part
	from, to int
	last     bool // it is a lastPart
}

// lastPart is sampled after all others, and also when one of these found the GPU
// lost: it makes no calls, and what it says then matters most.
type lastPart interface {
	part
	last()
}

var (
	_ collector.Source    = (*source)(nil)
	_ collector.CallMeter = (*source)(nil)
)

// newSource joins the parts of a GPU, which are sampled in this order; nil is no
// part. The source owns them.
func newSource(devices []collector.Device, parts ...part) *source {
	s := &source{devices: devices}
	for _, p := range parts {
		if p == nil {
			continue
		}
		at := len(s.cols)
		s.cols = append(s.cols, p.columns()...)
		_, last := p.(lastPart)
		s.parts = append(s.parts, span{p, at, len(s.cols), last})
	}
	return s
}

func (s *source) Devices() []collector.Device { return s.devices }

func (s *source) Columns() []collector.Column { return s.cols }

// Sample samples the parts in turn. One that cannot tell its values costs its own;
// when the GPU is lost or the driver is another, there is no use in the rest, but
// for what comes last.
func (s *source) Sample(row []float64, due []bool) error {
	err := s.sampleParts(row, due, false)
	if e := s.sampleParts(row, due, true); e != nil && (err == nil || !ends(err)) {
		err = errors.Join(err, e)
	}
	if err != nil && ends(err) {
		return fmt.Errorf("sample GPU %s: %w", s.devices[0].GPU, err)
	}
	return err
}

func (s *source) sampleParts(row []float64, due []bool, last bool) error {
	var first error
	for i := range s.parts {
		p := &s.parts[i]
		if p.last != last {
			continue
		}
		err := p.sample(row[p.from:p.to], due[p.from:p.to])
		switch {
		case err == nil:
		case ends(err):
			return err
		default:
			first = errors.Join(first, err)
		}
	}
	return first
}

// ends reports whether an error leaves nothing to ask for.
func ends(err error) bool {
	return errors.Is(err, collector.ErrDeviceLost) || errors.Is(err, collector.ErrOutdated) || errors.Is(err, collector.ErrColumnsChanged)
}

// Calls adds up what the parts' calls have cost.
func (s *source) Calls() []collector.CallCost {
	var out []collector.CallCost
	at := map[string]int{}
	for i := range s.parts {
		for _, c := range s.parts[i].calls() {
			j, known := at[c.Call]
			if !known {
				j = len(out)
				at[c.Call] = j
				out = append(out, collector.CallCost{Call: c.Call})
			}
			out[j].Count += c.Count
			out[j].Time += c.Time
		}
	}
	return out
}

func (s *source) close() {
	for i := range s.parts {
		s.parts[i].close()
	}
}

// silentSource is a GPU that NVML did not answer for at Open. It has no columns
// and says why.
type silentSource struct {
	devices []collector.Device
	err     error
	silent  func() bool // whether it still does not answer; nil if only a rescan can tell
}

var _ collector.Source = (*silentSource)(nil)

func (s *silentSource) Devices() []collector.Device { return s.devices }

func (*silentSource) Columns() []collector.Column { return nil }

// Sample asks for a new Open when the call that hung has returned.
func (s *silentSource) Sample([]float64, []bool) error {
	if s.silent != nil && !s.silent() {
		return fmt.Errorf("%w: GPU %s answers again", collector.ErrColumnsChanged, s.devices[0].GPU)
	}
	return s.err
}
