//go:build linux && cgo

package nvml

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// part supplies some columns of a GPU's source. Only the source's goroutine calls sample.
type part interface {
	// columns never changes. Device is the index in the source's devices.
	columns() []collector.Column

	// sample fills the due cells; row[i] and due[i] belong to columns()[i]. An unavailable value is NaN. An error
	// concerns the whole GPU, unless it is a collector.DeviceError.
	sample(row []float64, due []bool) error
}

// columnList holds the columns of a part.
type columnList struct{ cols []collector.Column }

func (l *columnList) columns() []collector.Column { return l.cols }

// target is a device that a part reads: a GPU, one of its instances or links.
type target struct {
	device int    // index in the source's devices
	reader device // for a link, its GPU's
	level  field.Level
	link   uint32 // link number from 0
}

// source is a GPU with its instances and links. It samples its parts in order.
type source struct {
	devices []collector.Device
	cols    []collector.Column
	parts   []span
	events  *eventsPart // the last part; nil if there is none
	*collector.Absences
	*costs
	prober
}

// span is a part with the range of its cells in the row.
type span struct {
	part
	from, to int
}

var (
	_ collector.Source    = (*source)(nil)
	_ collector.CallMeter = (*source)(nil)
	_ collector.Explainer = (*source)(nil)
)

// costs holds the meters of a source's library calls, one for each function. Parts add their meters in Open.
type costs []*collector.Meter

// meter returns the meter of a function. A nil *costs keeps no measurements.
func (c *costs) meter(call string) *collector.Meter {
	if c == nil {
		return &collector.Meter{Call: call}
	}
	for _, m := range *c {
		if m.Call == call {
			return m
		}
	}
	m := &collector.Meter{Call: call}
	*c = append(*c, m)
	return m
}

// Calls implements collector.CallMeter.
func (c *costs) Calls() (out []collector.CallCost) {
	for _, m := range *c {
		out = append(out, m.Cost())
	}
	return out
}

// newSource joins the parts of a GPU in sampling order and its events, which come last. It skips nil parts. The source
// owns the parts.
func newSource(g device, devices []collector.Device, c *costs, events *eventsPart, parts ...part) *source {
	s := &source{prober: prober{gpu: g}, devices: devices, events: events, Absences: &collector.Absences{}, costs: c}
	if events != nil {
		parts = append(parts, events)
	}
	for _, p := range parts {
		if p == nil {
			continue
		}
		at := len(s.cols)
		s.cols = append(s.cols, p.columns()...)
		s.parts = append(s.parts, span{p, at, len(s.cols)})
	}
	return s
}

func (s *source) Devices() []collector.Device { return s.devices }
func (s *source) Columns() []collector.Column { return s.cols }

// Sample samples the parts in turn. A part that fails loses its own values only. If the GPU is lost or the driver was
// replaced, Sample skips the rest except the events, so that the XID of a lost GPU is in the row that reports the loss.
func (s *source) Sample(row []float64, due []bool) error {
	var err error
	for i := range s.parts {
		p := &s.parts[i]
		last := s.events != nil && i == len(s.parts)-1
		if !last && err != nil && ends(err) {
			continue
		}
		if e := p.sample(row[p.from:p.to], due[p.from:p.to]); e != nil {
			switch {
			case err != nil && ends(err): // the first error is the reason
			case ends(e):
				err = e
			default:
				err = errors.Join(err, e)
			}
		}
	}
	if err != nil && ends(err) {
		return fmt.Errorf("sample GPU %s: %w", s.devices[0].GPU, err)
	}
	return err
}

// ends reports whether an error makes the remaining parts useless.
func ends(err error) bool {
	return errors.Is(err, collector.ErrDeviceLost) || errors.Is(err, collector.ErrOutdated) || errors.Is(err, collector.ErrColumnsChanged)
}

// prober asks a GPU something while a call hangs, a collector.Prober.
type prober struct {
	gpu   device // nil if it has no handle
	busy  [3]atomic.Bool
	calls sync.WaitGroup
}

// Probe implements collector.Prober. It makes several calls at once, because the one that hangs may be among them.
func (p *prober) Probe(running string) bool {
	answers, asked := make(chan bool, len(p.busy)), 0
	for i, c := range [len(p.busy)]*call{getTemperature, getPowerUsage, getUtilization} {
		if p.gpu == nil {
			return false
		}
		ask, ok := p.gpu.bind(c)
		if !ok || ask.name == running || p.busy[i].Swap(true) {
			continue
		}
		asked++
		p.calls.Go(func() {
			code := ask.do([3]uint32{}, make([]float64, ask.results)) // of sensor 0, the GPU
			p.busy[i].Store(false)
			answers <- !isFatal(code)
		})
	}
	for range asked {
		if <-answers {
			return true
		}
	}
	return false
}

func (p *prober) close() { p.calls.Wait() }

// close closes the parts that hold something. It waits for a call that hangs.
func (s *source) close() {
	s.prober.close()
	for i := range s.parts {
		if c, ok := s.parts[i].part.(interface{ close() }); ok {
			c.close()
		}
	}
}

// silentSource is a GPU that did not answer in Open. It has no columns, and its Sample returns the reason.
type silentSource struct {
	devices []collector.Device
	err     error
	silent  func() bool          // whether it still does not answer; nil if only a rescan can tell
	took    func() time.Duration // asks it something simple
	since   time.Time
	prober
}

// brisk is how long a call may take for a new Open: it makes about 50 calls and waits a second for them.
const brisk = 20 * time.Millisecond

// attaching is how long the driver may take to attach to all GPUs of a node, one after the other.
const attaching = 30 * time.Second

var (
	_ collector.Source = (*silentSource)(nil)
	_ collector.Silent = (*silentSource)(nil)
)

func (l *library) silent(g *gpu, err error, silent func() bool) *silentSource {
	return &silentSource{[]collector.Device{g.device}, err, silent, func() time.Duration {
		began := time.Now()
		_, _ = l.api.DeviceGetHandleByIndex(g.index) // any answer counts
		return time.Since(began)
	}, time.Now(), prober{gpu: g.reader}}
}

func (s *silentSource) Devices() []collector.Device { return s.devices }
func (*silentSource) Columns() []collector.Column   { return nil }
func (s *silentSource) Silent() bool {
	return s.silent != nil || errors.Is(s.err, collector.ErrDeviceLost)
}

// Sample returns collector.ErrStalled while the driver may attach to the GPU, then collector.ErrHung. It requests a new
// Open when the call that hung has returned and the GPU answers quickly.
func (s *silentSource) Sample([]float64, []bool) error {
	if s.silent == nil {
		return s.err
	}
	why := collector.ErrStalled
	if time.Since(s.since) > attaching {
		why = collector.ErrHung
	}
	err := fmt.Errorf("%w: %w", why, s.err)
	if !s.silent() {
		if took := s.took(); took > brisk {
			return fmt.Errorf("%w: GPU %s is slow: a call takes %v", collector.ErrStalled, s.devices[0].GPU, took.Round(time.Millisecond))
		}
		again := fmt.Errorf("%w: GPU %s answers again", collector.ErrColumnsChanged, s.devices[0].GPU)
		return errors.Join(again, &collector.DeviceError{Err: err}) // it has no values until then
	}
	return err
}

// closeAll closes sources.
func closeAll(sources []collector.Source) {
	for _, s := range sources {
		s.(interface{ close() }).close()
	}
}
