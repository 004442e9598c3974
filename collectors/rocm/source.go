package rocm

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"

	"go.uber.org/zap"

	"warpgauge/collectors/rocm/internal/gpumetrics"
	"warpgauge/collectors/rocm/internal/raw"
	"warpgauge/pkg/collector"
)

// source is one GPU with its partitions and links.
type source struct {
	gpu     raw.GPU
	log     *zap.Logger
	devices []collector.Device
	columns []collector.Column
	cells   []cell

	smi   raw.Handle // nil: all is read from /sys
	files raw.Files
	split int    // readings before are smi's
	due   []bool // by slot
	bus   *bus   // nil: nobody asked

	frame      frame
	time       timebase
	partitions uint64 // as gpu_metrics told them at Open
	said       [sayings]string
}

var (
	_ collector.Source    = (*source)(nil)
	_ collector.CallMeter = (*source)(nil)
)

// What a source logs when it changes.
const (
	sayPower = iota
	sayMetrics
	sayLibrary
	sayFiles
	sayings
)

func (s *source) Devices() []collector.Device { return s.devices }
func (s *source) Columns() []collector.Column { return s.columns }

// Sample reads what is due: gpu_metrics once, through the library in one
// crossing, and the rest from kept descriptors. A suspended board is left alone:
// its cells are blank.
// Errors: collector.ErrDeviceLost, collector.ErrStalled, collector.ErrColumnsChanged.
func (s *source) Sample(row []float64, due []bool) error {
	if s.files.Suspended() {
		s.say(sayPower, "suspended, not read")
		s.blank(row, due)
		s.time.reset()
		return nil
	}
	s.say(sayPower, "")
	metrics := s.plan(due)
	err := s.read(metrics)
	if errors.Is(err, collector.ErrDeviceLost) {
		s.blank(row, due)
		s.time.reset()
	}
	if err != nil {
		return err
	}
	for i := range s.cells {
		if due[i] {
			row[i] = s.cells[i].value(&s.frame)
		}
	}
	return nil
}

func (s *source) blank(row []float64, due []bool) {
	for i := range row {
		if due[i] {
			row[i] = math.NaN()
		}
	}
}

// plan marks the raw readings of the columns that are due and says whether they
// need gpu_metrics.
func (s *source) plan(due []bool) (metrics bool) {
	clear(s.due)
	for i := range s.cells {
		if !due[i] {
			continue
		}
		c := &s.cells[i]
		metrics = metrics || c.metrics
		for _, slot := range c.slots {
			s.due[slot] = true
		}
	}
	return metrics
}

// read fills the frame. Errors are those of the whole GPU; what one reader
// cannot tell is blank and logged when that changes.
func (s *source) read(metrics bool) error {
	f := &s.frame
	if metrics {
		if err := s.readMetrics(); err != nil {
			return err
		}
	}
	if s.bus != nil {
		f.bus = s.bus.latest()
	}
	if err := s.readWith(s.files, sayFiles, f.values[s.split:], s.due[s.split:]); err != nil {
		return err
	}
	if s.smi == nil {
		return nil
	}
	return s.readWith(s.smi, sayLibrary, f.values[:s.split], s.due[:s.split])
}

func (s *source) readWith(h raw.Handle, saying int, values []float64, due []bool) error {
	if !slices.Contains(due, true) {
		return nil
	}
	err := h.Read(values, due)
	// The library has forgotten the GPU, or cannot be started any more: another
	// Open finds out who can read it.
	if errors.Is(err, collector.ErrDeviceLost) || errors.Is(err, collector.ErrColumnsChanged) {
		return fmt.Errorf("read GPU %q: %w", s.gpu.PCI, err)
	}
	s.sayErr(saying, err)
	return nil
}

func (s *source) readMetrics() error {
	f := &s.frame
	err := s.files.Metrics(&f.metrics)
	switch {
	case errors.Is(err, collector.ErrDeviceLost):
		return fmt.Errorf("read gpu_metrics of GPU %q: %w", s.gpu.PCI, err)
	case err != nil:
		if !errors.Is(err, fs.ErrNotExist) { // older boards have none
			s.sayErr(sayMetrics, err)
		}
		return nil
	}
	s.sayErr(sayMetrics, nil)
	var frozen bool
	f.now, frozen = s.time.read(&f.metrics)
	f.era = s.time.era
	if frozen {
		return fmt.Errorf("read gpu_metrics of GPU %q: the firmware's time stamp stands still: %w", s.gpu.PCI, collector.ErrStalled)
	}
	return s.divided()
}

// divided reports that the GPU has another number of partitions than at Open.
func (s *source) divided() error {
	n := s.frame.metrics.Raw(gpumetrics.NumPartition, 0)
	if n == gpumetrics.NA || s.partitions == gpumetrics.NA || n == s.partitions {
		return nil
	}
	return fmt.Errorf("GPU %q has %d partitions, had %d: %w", s.gpu.PCI, n, s.partitions, collector.ErrColumnsChanged)
}

// value is that of the first term that has one.
func (c *cell) value(f *frame) float64 {
	for i := range c.terms {
		v := c.terms[i].value(f)
		switch {
		case math.IsNaN(v):
		case c.whole:
			return math.Round(v)
		default:
			return v
		}
	}
	return math.NaN()
}

func (s *source) sayErr(about int, err error) {
	if err == nil {
		s.say(about, "")
		return
	}
	if s.said[about] == "" {
		s.say(about, err.Error())
	}
}

// say logs a change of state once.
func (s *source) say(about int, what string) {
	before := s.said[about]
	if before == what {
		return
	}
	s.said[about] = what
	device := zap.String("device", s.devices[0].ID)
	switch {
	case what == "":
		s.log.Info("reads again", device, zap.String("after", before))
	case about == sayPower:
		s.log.Info("gpu is suspended: it is not read, so as not to wake it", device)
	default:
		s.log.Warn("cannot read some fields of a gpu", device, zap.String("err", what))
	}
}

// Calls returns what the library's functions and the files have cost.
func (s *source) Calls() []collector.CallCost {
	var out []collector.CallCost
	for _, h := range []raw.Handle{s.smi, s.files} {
		if m, ok := h.(raw.Meter); ok {
			for _, c := range m.Calls() {
				out = append(out, collector.CallCost{Call: c.Name, Count: c.Count, Time: c.Time})
			}
		}
	}
	return out
}
