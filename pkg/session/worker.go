package session

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/view"
)

// worker samples one source. Its goroutine is the only caller of the source and the only writer of the ring; everything
// that others read is atomic.
type worker struct {
	source   collector.Source
	view     *view.Source
	dated    collector.Dater // nil if the source has no cache
	keep     *kept           // nil if the whole source is selected
	schedule *schedule
	deadline time.Duration
	phase    time.Duration // offset of this source's samples within a tick, to spread the load

	// Used by the goroutine only, sized once.
	row    []float64
	stamps []int64
	errs   []error // by device, in the current tick
	events []int   // columns that are NaN unless an event occurs
	xids   []int   // other columns about XIDs
	min    []float64
	max    []float64

	labels  []labelled // columns whose values are also labels
	checked time.Time  // when the labels were last compared, or the session began

	hang     Cause // of its devices during a call that hangs
	outdated bool  // the library no longer matches the driver and must not be called again

	epoch        time.Time        // of callStart; monotonic, so that a clock step does not look like a hang
	callStart    atomic.Int64     // when the running library call began, ns since epoch; 0 between calls
	prober       collector.Prober // nil if the source has none
	timer        *time.Timer      // of the next probe
	asking, over atomic.Bool      // a probe is running; no other one may begin
	answered     atomic.Int64     // when it has answered, ns since epoch
	outcomes     []atomic.Pointer[outcome]
	lastGood     []atomic.Int64 // Unix ns, by device; 0: never

	counters    counters
	implausible []*atomic.Uint64 // by column

	notify  func(error) // receives ErrColumnsChanged, ErrDeviceLost and ErrOutdated; must not block
	changed chan struct{}
}

func (s *Session) newWorker(src bound, v *view.Source, implausible map[string]*atomic.Uint64) *worker {
	devices, columns := v.Devices, v.Columns
	w := &worker{
		source: src.source, view: v, keep: src.keep, schedule: src.schedule, deadline: s.o.Deadline,
		epoch:    time.Now().Add(-1), // no call begins at 0
		row:      make([]float64, len(columns)),
		stamps:   make([]int64, len(devices)),
		errs:     make([]error, len(devices)),
		min:      make([]float64, len(columns)),
		max:      make([]float64, len(columns)),
		outcomes: make([]atomic.Pointer[outcome], len(devices)),
		lastGood: make([]atomic.Int64, len(devices)),
		notify:   s.notify, changed: s.changed, hang: CauseHung,
	}
	gpu := func(d collector.Device) bool { return d.Level == field.GPU }
	if all := src.source.Devices(); slices.ContainsFunc(all[slices.IndexFunc(all, gpu)+1:], gpu) { // several GPUs
		w.hang = CauseBlocked
	}
	w.dated, _ = src.source.(collector.Dater)
	w.prober, _ = src.source.(collector.Prober)
	w.timer = time.AfterFunc(time.Hour, w.probe)
	w.implausible = make([]*atomic.Uint64, len(columns))
	for i, c := range columns {
		w.row[i], w.min[i], w.max[i] = collector.NotSampled(), math.Inf(-1), math.Inf(1)
		label := "unknown"
		if d, ok := field.ByID(c.Field); ok {
			label = d.Name
			if c.Buffer%2 == 1 || c.Buffer == 0 { // the other cells of a block hold times
				w.min[i], w.max[i] = d.Min, d.Max
			}
			if d.Event || c.Buffer > 0 {
				w.events = append(w.events, i)
			}
			if !d.Event && field.IsXID(d.ID) {
				w.xids = append(w.xids, i)
			}
		}
		if implausible[label] == nil {
			implausible[label] = new(atomic.Uint64)
		}
		w.implausible[i] = implausible[label]
	}
	for i := range w.outcomes {
		w.outcomes[i].Store(outcomeStarting)
	}
	w.labels, w.checked = labelsOf(v), time.Now()
	return w
}

// labelled is a column whose value is also in a label of its device.
type labelled struct {
	column int
	name   string
	value  float64 // of the label
	scale  field.Scale
}

// labelsOf returns the labels of a source that can change.
func labelsOf(v *view.Source) (out []labelled) {
	for i := range v.Fields.Fields {
		f := &v.Fields.Fields[i]
		if !f.Changes() {
			continue
		}
		for j, c := range v.Columns {
			if v.Devices[c.Device].Parent != "" {
				continue // its labels come from its GPU
			}
			at := slices.IndexFunc(v.Devices[c.Device].Facts, func(l collector.Label) bool { return l.Name == f.Name })
			if c.Field != f.Desc.ID || c.Buffer > 0 || at < 0 {
				continue
			}
			if value, err := strconv.ParseFloat(v.Devices[c.Device].Facts[at].Value, 64); err == nil {
				out = append(out, labelled{j, f.Name, value, field.NewScale(f.Scale)})
			}
		}
	}
	return out
}

// checkLabels requests another session if a label's value has changed.
func (w *worker) checkLabels(now time.Time) {
	if len(w.labels) == 0 || now.Sub(w.checked) < field.LabelInterval {
		return
	}
	w.checked = now
	for _, l := range w.labels {
		if v := l.scale.Of(w.row[l.column]); math.Abs(v-l.value) > 1e-9*math.Abs(l.value) { // false for NaN
			w.notify(fmt.Errorf("%w: label %q was %v and is %v", collector.ErrColumnsChanged, l.name, l.value, v))
			return
		}
	}
}

// run samples until ctx ends. It takes the first sample at once and later ones on a grid, so that a slow call causes
// missed ticks instead of a permanent delay.
func (w *worker) run(ctx context.Context) {
	tick := w.schedule.tick
	grid := time.Now().Add(w.phase - tick) // tick 1 comes phase after tick 0
	timer := time.NewTimer(0)
	defer timer.Stop()
	var n, failures uint64
	for {
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		if ctx.Err() != nil {
			if n > 0 {
				w.last(time.Now())
			}
			for w.over.Store(true); w.asking.Load(); time.Sleep(lookEvery) {
			}
			w.timer.Stop()
			return
		}
		if w.tick(n, time.Now()) {
			failures = 0
		} else {
			failures++
		}
		passed := uint64(time.Since(grid)/tick) + 1
		next := max(n+1, passed)
		if n > 0 && next > n+1 {
			w.counters.missed.Add(next - n - 1)
		}
		n = next + w.backOff(failures)
		timer.Reset(time.Until(grid.Add(time.Duration(n) * tick)))
	}
}

// backOff returns how many ticks to skip after consecutive failed calls: none for the first three, then 1, 2, 4 … up to
// maxBackOff.
func (w *worker) backOff(failures uint64) uint64 {
	if failures <= 3 {
		return 0
	}
	limit := uint64(maxBackOff / w.schedule.tick)
	return min(uint64(1)<<min(failures-4, 30), max(limit, 1)-1)
}

// tick samples the row of tick n.
func (w *worker) tick(n uint64, now time.Time) bool { return w.sampleRow(w.schedule.at(n), now) }

// sampleRow reads the due cells and appends a row. It reports whether the call worked. It also appends a row after a
// failure: its stamps show how old the cells are.
func (w *worker) sampleRow(due []bool, now time.Time) bool {
	for _, i := range w.events {
		w.row[i] = math.NaN()
	}
	start := now.UnixNano()
	w.callStart.Store(int64(now.Sub(w.epoch)))
	if w.prober != nil {
		w.timer.Reset(w.deadline * 2 / 5)
	}
	var err error
	if w.keep == nil {
		err = w.source.Sample(w.row, due)
	} else {
		err = w.keep.sample(w.source, w.row, due)
	}
	w.callStart.Store(0)
	w.counters.observe(time.Since(now))
	w.dropImplausible(due)
	w.checkLabels(now)
	ok := w.recordOutcomes(start, err)
	if w.timer.Stop(); w.prober != nil && w.outcomes[0].Load().cause == CauseHung {
		w.timer.Reset(0)
	}
	w.view.Ring.Append(start, w.stamps, w.row)
	return ok
}

// last samples a row with the events since the last tick, which the next session would miss.
func (w *worker) last(now time.Time) {
	if len(w.events)+len(w.xids) == 0 || w.outdated {
		return
	}
	due := w.schedule.due
	clear(due)
	clear(w.schedule.devices)
	for _, columns := range [...][]int{w.events, w.xids} {
		for _, i := range columns {
			due[i] = true
			w.schedule.devices[w.view.Columns[i].Device] = true
		}
	}
	w.sampleRow(due, now)
}

// recordOutcomes turns the error of a call into the stamps and outcomes of the devices. A device without due columns
// keeps its old stamp, because nothing was read from it. It reports whether the call worked; a call that reports frozen
// values, or a call of Open that has not returned, counts as working.
func (w *worker) recordOutcomes(start int64, err error) (worked bool) {
	anyOK := false
	if err != nil {
		w.counters.failed.Add(1)
		w.assign(err)
	}
	for i := range w.errs {
		if e := w.errs[i]; e != nil {
			w.errs[i] = nil
			// A device that fails in the same way on each tick needs one outcome.
			if old := w.outcomes[i].Load().err; old == nil || !errors.Is(e, old) && e.Error() != old.Error() {
				w.setOutcome(i, outcomeOf(e))
			}
			cause := w.outcomes[i].Load().cause
			worked = worked || cause == CauseFrozen || cause == CauseHung
			continue
		}
		if !w.schedule.devices[i] {
			continue
		}
		anyOK = true
		stamp := w.stamp(i, start)
		w.stamps[i] = stamp
		w.lastGood[i].Store(stamp)
		if w.outcomes[i].Load() != outcomeUp {
			w.setOutcome(i, outcomeUp)
		}
	}
	if !anyOK {
		w.schedule.retry()
	}
	return worked || anyOK
}

// stamp returns when the values of a device that was sampled at start were read.
func (w *worker) stamp(device int, start int64) int64 {
	if w.dated == nil {
		return start
	}
	if w.keep != nil {
		device = slices.Index(w.keep.shown, device)
	}
	if at := w.dated.Dated(device); at > 0 && at < start {
		return at
	}
	return start
}

func (w *worker) setOutcome(i int, o *outcome) {
	w.outcomes[i].Store(o)
	view.Offer(w.changed, struct{}{})
}

func (w *worker) dropImplausible(due []bool) {
	for i, v := range w.row {
		if due[i] && (v < w.min[i] || v > w.max[i] || math.IsInf(v, 0)) {
			w.row[i] = collector.Dropped(v)
			w.implausible[i].Add(1)
		}
	}
}

// assign applies the error of a Sample to the devices. A DeviceError concerns one device, joined errors that include a
// DeviceError concern the device of each part, and any other error concerns all. ErrColumnsChanged alone concerns none: the
// values are good, and it only requests another session. With ErrNotLoaded, which means a lost connection, all devices fail.
func (w *worker) assign(err error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		parts := joined.Unwrap()
		if slices.ContainsFunc(parts, func(e error) bool { _, ok := deviceOf(e); return ok }) {
			for _, e := range parts {
				w.assign(e)
			}
			return
		}
	}
	if errors.Is(err, collector.ErrColumnsChanged) {
		w.notify(err)
		if !errors.Is(err, collector.ErrNotLoaded) {
			return
		}
	}
	outdated := errors.Is(err, collector.ErrOutdated)
	w.outdated = w.outdated || outdated
	if outdated || errors.Is(err, collector.ErrDeviceLost) {
		w.notify(err)
	}
	if i, ok := deviceOf(err); ok && i >= 0 && i < len(w.source.Devices()) {
		if w.keep != nil {
			if i = w.keep.shown[i]; i < 0 {
				return // the device is not selected
			}
		}
		w.errs[i] = err
		return
	}
	for i := range w.errs {
		w.errs[i] = err
	}
}

// deviceOf returns the device of an error. A bare DeviceError, which a lost board returns on each tick, costs no allocation.
func deviceOf(err error) (int, bool) {
	if one, ok := errors.AsType[*collector.DeviceError](err); ok {
		return one.Device, true
	}
	return 0, false
}

// inCall returns how long the running call has taken, 0 between calls.
func (w *worker) inCall(now time.Time) time.Duration {
	start := w.callStart.Load()
	if start == 0 {
		return 0
	}
	return now.Sub(w.epoch) - time.Duration(start)
}

// device returns the status of device i. It may be called from any goroutine.
func (w *worker) device(i int, now time.Time) DeviceStatus {
	o := w.outcomes[i].Load()
	st := DeviceStatus{Device: w.view.Devices[i], State: o.state, Cause: o.cause, Reason: o.reason}
	if t := w.lastGood[i].Load(); t != 0 {
		st.LastSample = time.Unix(0, t)
	}
	if d := w.inCall(now); d > w.deadline {
		st.State, st.Cause = Stalled, w.hang
		st.Reason = strings.TrimSpace("library call "+w.running()) + " has not returned since " + now.Add(-d).UTC().Format(time.RFC3339)
	}
	if at := w.answered.Load(); st.Cause == CauseHung && at > 0 && now.Sub(w.epoch)-time.Duration(at) < w.deadline {
		st.Cause, st.Reason = CauseOneCall, st.Reason+"; another one returns"
	}
	return st
}

// running returns the name of the call that has not returned, "" if the source does not know it.
func (w *worker) running() string {
	if m, ok := w.source.(collector.CallMeter); ok {
		for _, c := range m.Calls() {
			if c.Running {
				return c.Call
			}
		}
	}
	return ""
}

// probe asks a source whose call hangs something else, again and again. An answer is valid for the time of a deadline.
func (w *worker) probe() {
	if w.prober == nil || !w.asking.CompareAndSwap(false, true) {
		return
	}
	defer w.asking.Store(false)
	if w.over.Load() {
		return
	}
	if begin := time.Now(); w.prober.Probe(w.running()) && time.Since(begin) < w.deadline/5 { // else it has hung, too
		w.answered.Store(int64(time.Since(w.epoch)))
	}
	if w.callStart.Load() != 0 {
		w.timer.Reset(w.deadline / 5)
	}
}
