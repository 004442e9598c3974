package sampler

import (
	"context"
	"fmt"
	"slices"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// binding is one opened collector with a worker per source.
type binding struct {
	collector collector.Collector
	version   uint64 // of the wish that it fulfils
	workers   []*worker
	gone      func()        // told after closed; must not block
	closed    chan struct{} // closed when every worker has ended and Close has returned
	err       error         // of Close; valid after closed
}

// newBinding binds opened sources. It fails only where no ring can be made.
func newBinding(c collector.Collector, sources []collector.Source, fields field.List, version uint64, o Options, m *metrics) (*binding, error) {
	b := &binding{collector: c, version: version, gone: func() {}, closed: make(chan struct{})}
	bounds := make([]bound, len(sources)) // all of them before the first worker, whose metrics would stay
	for i, src := range sources {
		var err error
		if bounds[i], err = bind(src, fields, o); err != nil {
			return nil, err
		}
	}
	for i, src := range bounds {
		w := newWorker(c.Name(), src, fields, o, m)
		w.phase = w.schedule.tick * time.Duration(i+1) / time.Duration(len(sources)+1)
		b.workers = append(b.workers, w)
	}
	return b, nil
}

// validate refuses sources that would lead readers out of bounds or give two
// devices one identity.
func validate(sources []collector.Source) error {
	if len(sources) == 0 {
		return collector.ErrNoDevices
	}
	seen := make(map[string]bool)
	for _, src := range sources {
		devices := src.Devices()
		for _, d := range devices {
			if d.ID == "" || seen[d.ID] {
				return fmt.Errorf("bind sources: device id %q is empty or not unique", d.ID)
			}
			seen[d.ID] = true
		}
		for i, c := range src.Columns() {
			if c.Device < 0 || c.Device >= len(devices) {
				return fmt.Errorf("bind sources: column %d is of device %d, the source has %d", i, c.Device, len(devices))
			}
		}
	}
	return nil
}

// start lets the workers go. A worker whose device is held by an overdue call of
// an earlier binding waits for that call: a driver that hangs gets no second.
func (b *binding) start(ctx context.Context, earlier []*binding, notify func(error)) {
	now := time.Now()
	for _, w := range b.workers {
		w.notify = notify
		for _, e := range earlier {
			for _, old := range e.workers {
				if old.hung(now) && sharesDevice(old, w) {
					old.cancel()
					w.after = append(w.after, old.done)
				}
			}
		}
		wctx, cancel := context.WithCancel(ctx)
		w.cancel = cancel
		go w.run(wctx)
	}
}

// retire ends the workers and closes the collector when the last call has
// returned, which may be never.
func (b *binding) retire() {
	for _, w := range b.workers {
		w.cancel()
	}
	b.close(b.workers)
}

// discard closes a binding that was never started.
func (b *binding) discard() { b.close(nil) }

// close closes the collector when the workers have ended.
func (b *binding) close(workers []*worker) {
	go func() {
		defer b.gone()
		defer close(b.closed)
		for _, w := range workers {
			<-w.done
		}
		if err := b.collector.Close(); err != nil {
			b.err = fmt.Errorf("close collector %q: %w", b.collector.Name(), err)
		}
	}()
}

// isClosed reports whether nothing of b is left.
func (b *binding) isClosed() bool {
	select {
	case <-b.closed:
		return true
	default:
		return false
	}
}

// takeOver returns when b can replace old without a gap and without a value
// going back, at the latest after limit. First each fresh device of old has given b
// values: a library may have none yet of one that it has just been asked for. Then
// old samples no more, and b samples once again: what old has read meanwhile is
// older than that, so no counter decreases when the View changes, which Prometheus
// would take for a reset.
func (b *binding) takeOver(ctx context.Context, old *binding, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	fresh := old.freshDevices()
	heirs := b.workersOf(fresh)
	for _, w := range heirs {
		w.awaitValues(ctx, fresh)
	}
	for _, w := range old.workers {
		w.cancel()
	}
	for _, w := range old.workersOf(fresh) {
		await(ctx, w.done)
	}
	again(ctx, heirs)
}

// awaitValues returns when those of the worker's devices that are among ids have
// given values, or ctx has ended.
func (w *worker) awaitValues(ctx context.Context, ids map[string]bool) {
	for i, d := range w.view.Devices {
		if ids[d.ID] {
			await(ctx, w.first[i])
		}
	}
}

// again lets workers sample once more, everything and beyond their schedule, and
// returns when they have, or have ended, or ctx has.
func again(ctx context.Context, workers []*worker) {
	answers := make([]chan struct{}, len(workers))
	for i, w := range workers {
		answers[i] = make(chan struct{}, 1)
		select {
		case w.again <- answers[i]:
		case <-w.done:
		case <-ctx.Done():
		}
	}
	for i, w := range workers {
		select {
		case <-answers[i]:
		case <-w.done:
		case <-ctx.Done():
		}
	}
}

func await(ctx context.Context, c <-chan struct{}) {
	select {
	case <-c:
	case <-ctx.Done():
	}
}

// workersOf returns the workers that sample any of the devices.
func (b *binding) workersOf(ids map[string]bool) (out []*worker) {
	for _, w := range b.workers {
		if slices.ContainsFunc(w.view.Devices, func(d collector.Device) bool { return ids[d.ID] }) {
			out = append(out, w)
		}
	}
	return out
}

func (b *binding) freshDevices() map[string]bool {
	now := time.Now()
	fresh := make(map[string]bool)
	for _, w := range b.workers {
		for i, d := range w.view.Devices {
			if w.device(i, now).State == Up {
				fresh[d.ID] = true
			}
		}
	}
	return fresh
}

// hung reports whether the call in progress is over the deadline.
func (w *worker) hung(now time.Time) bool {
	return w.inCall(now) > w.deadline
}

// inCall returns how long the call in progress has taken, 0 between calls.
func (w *worker) inCall(now time.Time) time.Duration {
	start := w.callStart.Load()
	if start == 0 {
		return 0
	}
	return now.Sub(w.epoch) - time.Duration(start)
}

// device tells the state of device i. Called from any goroutine.
func (w *worker) device(i int, now time.Time) DeviceStatus {
	o := w.outcomes[i].Load()
	st := DeviceStatus{Device: w.view.Devices[i], State: o.state, Cause: o.cause, Reason: o.reason}
	if t := w.lastGood[i].Load(); t != 0 {
		st.LastSample = time.Unix(0, t)
	}
	if d := w.inCall(now); d > w.deadline {
		st.State, st.Cause = Stalled, CauseHung
		st.Reason = fmt.Sprintf("library call has not returned for %s", d.Round(time.Second))
	}
	return st
}

func sharesDevice(a, b *worker) bool {
	for _, d := range a.view.Devices {
		if slices.ContainsFunc(b.view.Devices, func(e collector.Device) bool { return e.ID == d.ID }) {
			return true
		}
	}
	return false
}
