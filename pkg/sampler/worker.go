package sampler

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/view"
)

// worker samples one source. Its goroutine is the only caller of the source and
// the only writer of the ring; everything that others read is atomic.
type worker struct {
	source   collector.Source
	view     *view.Source
	schedule *schedule
	deadline time.Duration
	retryMax time.Duration
	phase    time.Duration // where in a tick this source samples, to spread the load

	// Of the goroutine alone, sized once.
	row    []float64
	stamps []int64
	errs   []error // by device, of the tick in hand
	events []int   // columns that are NaN unless something happened
	min    []float64
	max    []float64

	epoch     time.Time    // of callStart; monotonic, so that a clock step hangs nothing
	callStart atomic.Int64 // when the library call in progress began, ns since epoch; 0 between calls
	outcomes  []atomic.Pointer[outcome]
	lastGood  []atomic.Int64 // Unix ns, by device; 0 never

	duration    prometheus.Observer
	failed      prometheus.Counter
	missed      prometheus.Counter
	implausible []prometheus.Counter // by column

	notify func(error) // told of ErrColumnsChanged, ErrDeviceLost and ErrOutdated; must not block
	after  []<-chan struct{}
	cancel context.CancelFunc
	first  []chan struct{}      // by device: closed when its first values are in the ring
	silent int                  // devices that have given none
	again  chan chan<- struct{} // wishes for a sample between two ticks; each is answered when it is in the ring
	done   chan struct{}        // closed when the goroutine has ended
}

func newWorker(name string, src bound, fields field.List, o Options, m *metrics) *worker {
	devices, columns := src.devices, src.columns
	w := &worker{
		source: src.source,
		epoch:  time.Now().Add(-1), // no call begins at 0
		view: &view.Source{
			Collector: name, Fields: fields, Devices: devices, Columns: columns,
			Ring: src.ring,
		},
		schedule: src.schedule,
		deadline: o.Deadline,
		retryMax: o.RetryMax,
		row:      make([]float64, len(columns)),
		stamps:   make([]int64, len(devices)),
		errs:     make([]error, len(devices)),
		min:      make([]float64, len(columns)),
		max:      make([]float64, len(columns)),
		outcomes: make([]atomic.Pointer[outcome], len(devices)),
		lastGood: make([]atomic.Int64, len(devices)),
		first:    make([]chan struct{}, len(devices)),
		silent:   len(devices),
		again:    make(chan chan<- struct{}, 1),
		done:     make(chan struct{}),
	}
	id := sourceID(devices)
	w.duration = m.duration.WithLabelValues(name, id)
	w.failed = m.failed.WithLabelValues(name, id)
	w.missed = m.missed.WithLabelValues(name, id)
	w.implausible = make([]prometheus.Counter, len(columns))
	for i, c := range columns {
		w.row[i], w.min[i], w.max[i] = math.NaN(), math.Inf(-1), math.Inf(1)
		label := "unknown"
		if d, ok := field.ByID(c.Field); ok {
			w.min[i], w.max[i], label = d.Min, d.Max, d.Name
			if d.Event {
				w.events = append(w.events, i)
			}
		}
		w.implausible[i] = m.implausible.WithLabelValues(name, label)
	}
	for i := range w.outcomes {
		w.outcomes[i].Store(outcomeStarting)
		w.first[i] = make(chan struct{})
	}
	return w
}

// sourceID names a source by its first device.
func sourceID(devices []collector.Device) string {
	if len(devices) == 0 {
		return "none"
	}
	return devices[0].ID
}

// run samples until ctx ends. The first sample is taken at once, later ones on a
// grid, so that a slow call makes ticks missed, not late for ever.
func (w *worker) run(ctx context.Context) {
	defer close(w.done)
	if !w.waitTurn(ctx) {
		return
	}
	tick := w.schedule.tick
	grid := time.Now().Add(w.phase - tick) // tick 1 comes phase after tick 0
	timer := time.NewTimer(0)
	defer timer.Stop()
	var n, failures uint64
	for {
		select {
		case <-ctx.Done():
			return
		case answer := <-w.again:
			if n > 0 { // else the first sample is about to be taken anyway
				w.schedule.retry()
				w.tick(n-1, time.Now()) // as tick n-1, so that tick n is due all the same
			}
			answer <- struct{}{}
			continue
		case <-timer.C:
		}
		if ctx.Err() != nil {
			return // both were ready; a call after the end would delay Close
		}
		if ok := w.tick(n, time.Now()); ok {
			failures = 0
		} else {
			failures++
		}
		passed := uint64(time.Since(grid)/tick) + 1
		next := max(n+1, passed)
		if n > 0 && next > n+1 {
			w.missed.Add(float64(next - n - 1))
		}
		n = next + w.backOff(failures)
		timer.Reset(time.Until(grid.Add(time.Duration(n) * tick)))
	}
}

// waitTurn waits for the calls of an earlier binding on the same devices.
func (w *worker) waitTurn(ctx context.Context) bool {
	for _, c := range w.after {
		for i := range w.outcomes {
			w.outcomes[i].Store(outcomeWaiting)
		}
		select {
		case <-c:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// backOff returns how many ticks to leave out after so many failed calls in a
// row: none for the first three, then 1, 2, 4 … up to retryMax.
func (w *worker) backOff(failures uint64) uint64 {
	if failures <= 3 {
		return 0
	}
	limit := uint64(w.retryMax / w.schedule.tick)
	return min(uint64(1)<<min(failures-4, 30), max(limit, 1)-1)
}

// tick takes and appends one row. It reports whether any device gave values.
// A row is appended after a failure too: its stamps say how old the cells are.
func (w *worker) tick(n uint64, now time.Time) bool {
	due := w.schedule.at(n)
	for _, i := range w.events {
		w.row[i] = math.NaN()
	}
	start := now.UnixNano()
	w.callStart.Store(int64(now.Sub(w.epoch)))
	err := w.source.Sample(w.row, due)
	w.callStart.Store(0)
	w.duration.Observe(time.Since(now).Seconds())
	w.dropImplausible(due)
	ok := w.settle(start, err)
	w.view.Ring.Append(start, w.stamps, w.row)
	if w.silent > 0 {
		w.introduce()
	}
	return ok
}

// introduce tells of devices that have given their first values.
func (w *worker) introduce() {
	w.silent = 0
	for i, first := range w.first {
		select {
		case <-first:
		default:
			if w.stamps[i] == 0 {
				w.silent++
			} else {
				close(first)
			}
		}
	}
}

// settle turns the error of a call into the stamps and outcomes of the devices.
func (w *worker) settle(start int64, err error) (anyOK bool) {
	if err != nil {
		w.failed.Inc()
		w.blame(err)
	}
	for i := range w.errs {
		if e := w.errs[i]; e != nil {
			w.errs[i] = nil
			// A device that fails in the same way each tick costs one outcome.
			if old := w.outcomes[i].Load(); !old.same(e) {
				w.outcomes[i].Store(outcomeOf(e))
			}
			continue
		}
		anyOK = true
		w.stamps[i] = start
		w.lastGood[i].Store(start)
		if w.outcomes[i].Load() != outcomeUp {
			w.outcomes[i].Store(outcomeUp)
		}
	}
	if !anyOK {
		w.schedule.retry()
	}
	return anyOK
}

func (w *worker) dropImplausible(due []bool) {
	for i, v := range w.row {
		if due[i] && (v < w.min[i] || v > w.max[i]) {
			w.row[i] = math.NaN()
			w.implausible[i].Inc()
		}
	}
}
