package sampler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// firstRetry is the first pause after a failed Open and the shortest time
// between two Opens of one collector.
const firstRetry = time.Second

// keeper keeps one collector open and bound to the fields that are wanted. All
// its decisions are taken by the one goroutine in run; Open and Rescan, which
// may hang, run beside it, at most one of each.
type keeper struct {
	name    string
	factory collector.Factory
	o       Options
	metrics *metrics
	log     *zap.Logger
	publish func()

	current atomic.Pointer[binding] // in service; nil before the first Open succeeded, and while it is released
	former  atomic.Pointer[binding] // what was in service before there was none; nil while there is one
	problem atomic.Pointer[problem] // why it is not, or not with the fields wanted; nil if all is well
	missing memory                  // boards that Open no longer finds
	calls   callTotals              // of bindings that are gone

	wishMu   sync.Mutex
	wish     field.List
	version  uint64 // of wish
	waiters  []waiter
	letGo    Rest         // why it is to rest, 0 if it is not
	releases []chan error // that wait for that

	wake  chan struct{}              // the wish has changed
	event chan notice                // a worker met ErrColumnsChanged, ErrDeviceLost or ErrOutdated
	freed chan struct{}              // a binding is closed
	held  atomic.Pointer[[]*binding] // what a release waits for

	// Of run alone.
	pending  *binding
	retired  []*binding
	opened   chan opened
	ready    chan struct{}
	rescan   chan rescanned
	dirty    bool   // an Open is wanted
	asked    uint64 // version of the wish that was last given to Open
	released bool   // nothing is open, or soon will be, and nothing is opened
	retry    *time.Timer
	pause    time.Duration // the next back-off
	lastOpen time.Time
	lastScan time.Time
	told     map[string]string // device id → state last logged
}

type problem struct {
	cause  Cause
	reason string
}

type waiter struct {
	version uint64
	done    chan error
}

// notice is what a worker of a binding has met.
type notice struct {
	binding *binding
	err     error
}

type opened struct {
	collector collector.Collector
	binding   *binding // nil with an err
	version   uint64
	err       error
}

type rescanned struct {
	binding *binding
	changed bool
	err     error
}

func newKeeper(f collector.Factory, fields field.List, o Options, m *metrics, publish func()) *keeper {
	name := f().Name()
	k := &keeper{
		name: name, factory: f, o: o, metrics: m, publish: publish,
		log:  o.Logger.Named("sampler").With(zap.String("collector", name)),
		wish: fields, version: 1,
		wake: make(chan struct{}, 1), event: make(chan notice, 1), freed: make(chan struct{}, 1),
		pause: firstRetry, told: make(map[string]string),
		missing: memory{keep: o.LostMemory},
	}
	k.problem.Store(&problem{cause: CauseOpening, reason: "not opened yet"})
	for _, result := range []string{"success", "error"} { // from 0, so that the first one is an increase
		m.opens.WithLabelValues(name, result)
	}
	m.rescanErrors.WithLabelValues(name)
	return k
}

// reload changes the wish. The channel gets one value when it is fulfilled or
// cannot be for now.
func (k *keeper) reload(fields field.List) <-chan error {
	done := make(chan error, 1)
	k.wishMu.Lock()
	k.wish = fields
	k.version++
	k.waiters = append(k.waiters, waiter{k.version, done})
	k.wishMu.Unlock()
	poke(k.wake)
	return done
}

// poke fills a channel of one place.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// answer tells the waiters for versions up to v.
func (k *keeper) answer(v uint64, err error) {
	k.wishMu.Lock()
	defer k.wishMu.Unlock()
	k.waiters = slices.DeleteFunc(k.waiters, func(w waiter) bool {
		if w.version > v {
			return false
		}
		w.done <- err
		return true
	})
}

func (k *keeper) run(ctx context.Context) error {
	k.retry = time.NewTimer(0)
	defer k.retry.Stop()
	rescan := time.NewTicker(k.o.RescanInterval)
	defer rescan.Stop()
	watch := time.NewTicker(time.Second)
	defer watch.Stop()
	for {
		select {
		case <-ctx.Done():
			return k.stop()
		case <-k.retry.C:
			k.dirty = true
		case <-k.wake:
			k.onWish()
		case <-k.freed:
		case n := <-k.event:
			k.onEvent(ctx, n)
		case r := <-k.opened:
			k.onOpened(ctx, r)
		case <-k.ready:
			k.switchOver()
		case <-rescan.C:
			k.startRescan(ctx)
		case r := <-k.rescan:
			k.onRescanned(r)
		case <-watch.C:
			k.tellChanges()
		}
		switch {
		case k.released:
			k.settleRelease()
		case k.dirty && k.opened == nil && k.pending == nil:
			k.startOpen(ctx)
		}
	}
}

// notify is called by workers; events that come while one waits add nothing.
func (k *keeper) notify(b *binding, err error) {
	select {
	case k.event <- notice{b, err}:
	default:
	}
}

// stop ends everything. Calls that do not return in time are abandoned and named.
func (k *keeper) stop() error {
	k.answer(^uint64(0), context.Canceled)
	defer k.answerReleases(context.Canceled)
	all := k.retired
	for _, b := range []*binding{k.pending, k.current.Load()} {
		if b != nil {
			b.retire()
			all = append(all, b)
		}
	}
	deadline := time.After(k.o.StopTimeout)
	var errs []error
	if k.opened != nil {
		select {
		case r := <-k.opened:
			if r.err == nil {
				errs = append(errs, r.collector.Close())
			}
		case <-deadline:
			return fmt.Errorf("stop collector %q: opening it has not returned, abandoned", k.name)
		}
	}
	for _, b := range all {
		select {
		case <-b.closed:
			errs = append(errs, b.err)
		case <-deadline:
			return fmt.Errorf("stop collector %q: library calls for %v have not returned, abandoned", k.name, b.hungDevices())
		}
	}
	return errors.Join(errs...)
}

func (b *binding) deviceCount() (n int) {
	for _, w := range b.workers {
		n += len(w.view.Devices)
	}
	return n
}

// hungDevices names the first device of each source whose call is in progress.
func (b *binding) hungDevices() (ids []string) {
	for _, w := range b.workers {
		if w.callStart.Load() != 0 {
			ids = append(ids, sourceID(w.view.Devices))
		}
	}
	return ids
}
