package rocm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"warpgauge/collectors/rocm/internal/gpumetrics"
	"warpgauge/collectors/rocm/internal/sysfs"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// reader reads the raw readings of one GPU: *sysfs.Handle or *smiReader. One goroutine uses it, except for Calls of a
// collector.CallMeter.
type reader interface {
	// Read stores the due readings in values, NaN for missing ones. Errors: sysfs.ErrLost, sysfs.ErrReplaced,
	// collector.ErrColumnsChanged, wrapped.
	Read(values []float64, due []bool) error
	Close()
}

// source is one GPU with its partitions and links.
type source struct {
	gpu     sysfs.GPU
	log     *zap.Logger
	devices []collector.Device
	columns []collector.Column
	cells   []cell

	reader reader
	files  *sysfs.Handle // gpu_metrics, pcie_bw and the power state, for every reader
	due    []bool        // by reading
	bus    *bus          // nil if not used
	added  *addedGPU     // nil if not used

	collector.Absences
	blanks  blanks
	sampled bool      // after the first sample
	scanned time.Time // of processes
	units   bool      // compute units of processes are needed

	frame      frame
	time       timebase
	partitions uint64 // as in gpu_metrics in Open
	power      state
	unreadable state // gpu_metrics
}

var (
	_ collector.Source    = (*source)(nil)
	_ collector.CallMeter = (*source)(nil)
	_ collector.Explainer = (*source)(nil)
)

func (s *source) Devices() []collector.Device { return s.devices }
func (s *source) Columns() []collector.Column { return s.columns }

// Sample reads the due cells, with at most one read per file and one call per library function. It does not read a suspended
// board, whose cells are blank. Errors: collector.ErrDeviceLost, collector.ErrStalled, collector.ErrColumnsChanged.
func (s *source) Sample(row []float64, due []bool) error {
	if s.files.Suspended() {
		s.logPower(errSuspended)
		collector.FillDue(row, due, s.blanks.suspended)
		s.time.reset()
		return nil
	}
	s.logPower(nil)
	err := s.readFrame(s.plan(due))
	if errors.Is(err, collector.ErrDeviceLost) {
		collector.FillDue(row, due, math.NaN())
		s.time.reset()
	}
	if err != nil {
		return err
	}
	for i := range s.cells {
		if due[i] {
			row[i] = s.explain(&s.cells[i], s.cells[i].value(&s.frame))
		}
	}
	s.sampled = true
	return nil
}

// plan marks the raw readings of the due columns and reports whether they need gpu_metrics and the processes.
func (s *source) plan(due []bool) (metrics, processes bool) {
	clear(s.due)
	for i := range s.cells {
		if !due[i] {
			continue
		}
		c := &s.cells[i]
		metrics, processes = metrics || c.metrics, processes || c.process
		for _, slot := range c.slots {
			s.due[slot] = true
		}
	}
	return metrics, processes
}

// scanAfter is how long a scan of processes stays valid. A scan opens files of every process, which is too expensive for
// short intervals.
const scanAfter = time.Second

// readFrame fills the frame. An error concerns the whole GPU.
func (s *source) readFrame(metrics, processes bool) error {
	f := &s.frame
	if metrics {
		if err := s.readMetrics(); err != nil {
			return err
		}
	}
	if s.bus != nil {
		f.bus = *s.bus.values.Load()
	}
	if s.added != nil {
		f.wall = time.Now()
		f.added = s.added.row(f.wall)
	}
	if now := time.Now(); processes && now.Sub(s.scanned) >= scanAfter {
		s.scanned, f.scanned = now, f.processes.Scan(s.units) == nil
	}
	if !slices.Contains(s.due, true) {
		return nil
	}
	if err := s.reader.Read(f.values, s.due); err != nil {
		return fmt.Errorf("read GPU %q: %w", s.gpu.PCI, ofDevice(err))
	}
	return nil
}

// ofDevice adds the collector's meaning to an error of package sysfs about a whole GPU.
func ofDevice(err error) error {
	switch {
	case errors.Is(err, sysfs.ErrLost):
		return fmt.Errorf("%w: %w", collector.ErrDeviceLost, err)
	case errors.Is(err, sysfs.ErrReplaced):
		return fmt.Errorf("%w: %w", collector.ErrColumnsChanged, err)
	}
	return err
}

func (s *source) readMetrics() error {
	f := &s.frame
	err := ofDevice(s.files.Metrics(&f.metrics))
	f.unread[unreadMetrics], f.unread[unreadAttributes] = math.NaN(), math.NaN()
	switch {
	case errors.Is(err, collector.ErrDeviceLost):
		return fmt.Errorf("read gpu_metrics of GPU %q: %w", s.gpu.PCI, err)
	case errors.Is(err, gpumetrics.ErrRevision): // logged once for all GPUs
		f.unread[unreadMetrics] = 1
		return nil
	case err != nil:
		if !errors.Is(err, fs.ErrNotExist) { // older boards have none
			s.logMetrics(err)
		}
		return nil
	}
	s.logMetrics(nil)
	f.unread[unreadMetrics], f.unread[unreadAttributes] = 0, float64(f.metrics.Unknown())
	var frozen bool
	f.now, frozen = s.time.advance(&f.metrics)
	f.era = s.time.era
	if frozen {
		return fmt.Errorf("read gpu_metrics of GPU %q: the firmware's time stamp does not move: %w", s.gpu.PCI, collector.ErrStalled)
	}
	if n := f.metrics.Raw(gpumetrics.NumPartition, 0); n != s.partitions && n != gpumetrics.NA && s.partitions != gpumetrics.NA {
		return fmt.Errorf("GPU %q has %d partitions, had %d: %w", s.gpu.PCI, n, s.partitions, collector.ErrColumnsChanged)
	}
	return nil
}

// value returns the value of the first term that has one.
func (c *cell) value(f *frame) float64 {
	for i := range c.terms {
		if v := c.terms[i].value(f); c.whole && !math.IsNaN(v) {
			return math.Round(v)
		} else if !math.IsNaN(v) {
			return v
		}
	}
	return math.NaN()
}

var errSuspended = errors.New("suspended")

func (s *source) logPower(err error) {
	s.power.log(s.log, zap.InfoLevel, "gpu is suspended; not reading it, because that would wake it", "gpu is no longer suspended", err)
}

func (s *source) logMetrics(err error) {
	s.unreadable.log(s.log, zap.WarnLevel, "cannot read some fields of a gpu", "reading all fields of a gpu again", err)
}

// state is the last logged problem of something, "" without one. One goroutine uses it.
type state string

// log logs a problem when it begins or changes, and its end, when err is nil.
func (s *state) log(to *zap.Logger, level zapcore.Level, begins, ends string, err error) {
	what := ""
	if err != nil {
		what = err.Error()
	}
	if string(*s) == what {
		return
	}
	if *s = state(what); err == nil {
		to.Info(ends)
		return
	}
	to.Log(level, begins, zap.Error(err))
}

// Calls returns the cost of the library's functions.
func (s *source) Calls() []collector.CallCost {
	if m, ok := s.reader.(collector.CallMeter); ok {
		return m.Calls()
	}
	if s.added != nil && s.added == s.added.all.gpus[0] { // it reports the calls for all GPUs
		return s.added.all.lib.Calls()
	}
	return nil
}

// close stops reading pcie_bw and closes the reader. It may be called twice.
func (s *source) close() {
	if s.bus != nil {
		s.bus.close()
	}
	s.frame.processes.Close()
	s.reader.Close()
}

// bus reads pcie_bw on its own goroutine, because the driver sleeps for a second in each read.
type bus struct {
	files  *sysfs.Handle
	values atomic.Pointer[[2]float64] // bytes per second: sent, received; NaN before the first read and after a failed one
	stop   context.CancelFunc
	ended  sync.WaitGroup
}

// minBusInterval leaves a pause between reads, which take a second each.
const minBusInterval = 2 * time.Second

func startBus(files *sysfs.Handle, every time.Duration) *bus {
	ctx, stop := context.WithCancel(context.Background())
	b := &bus{files: files, stop: stop}
	b.values.Store(&[2]float64{math.NaN(), math.NaN()})
	b.ended.Go(func() { b.run(ctx, max(every, minBusInterval)) })
	return b
}

func (b *bus) run(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		v := [2]float64{math.NaN(), math.NaN()}
		if !b.files.Suspended() {
			v[0], v[1], _ = b.files.Bus() // NaN after an error
		}
		b.values.Store(&v)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// close ends the goroutine. It waits for a running read, at most a second.
func (b *bus) close() {
	b.stop()
	b.ended.Wait()
}

// busFields are the fields from pcie_bw.
var busFields = []field.ID{dcgmPCIeTx, dcgmPCIeRx, dcgmPCIeTxKB, dcgmPCIeRxKB} //nolint:gochecknoglobals // a constant

// shortestInterval returns the shortest interval of a list row with one of the fields, at most longest.
func shortestInterval(fields field.List, of []field.ID, longest time.Duration) time.Duration {
	for _, r := range fields.Readings() {
		if slices.Contains(of, r.Desc.ID) && r.Interval > 0 {
			longest = min(longest, r.Interval)
		}
	}
	return longest
}
