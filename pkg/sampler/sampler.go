// Package sampler calls the collectors: one goroutine per source takes a row on
// each tick and appends it to the source's ring, one goroutine per collector (a
// keeper) opens it with back-off, rebinds it when fields or devices change, and
// tells the state of each device. Readers meet it only through the rings on the
// Board and through Status; neither ever waits for a library call.
package sampler

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/view"
)

// MinInterval is the shortest tick.
const MinInterval = 10 * time.Millisecond

// Options of New. The zero value is usable.
type Options struct {
	Interval       time.Duration         // tick of field.EachTick readings; 0 means 1 s, at least MinInterval
	SlowInterval   time.Duration         // of field.Slow readings; 0 means 30 s, at least Interval
	StaticInterval time.Duration         // of field.Static readings; 0 means 5 min, at least SlowInterval
	Deadline       time.Duration         // a library call that takes longer makes its devices stalled; 0 means 5 s
	OpenTimeout    time.Duration         // of the context that Open and Rescan get; 0 means 30 s
	RescanInterval time.Duration         // how often to look for other devices; 0 means 1 min
	RetryMax       time.Duration         // ceiling of every back-off; 0 means 30 s
	LostMemory     time.Duration         // how long a board that Open no longer finds is still told as lost; 0 means 1 h
	StopTimeout    time.Duration         // how long Run waits for library calls at its end; 0 means 2 s
	RingSpan       time.Duration         // what a ring should hold; 0 means 1 min. At least 16, at most 1024 rows
	Logger         *zap.Logger           // nil logs nothing
	Registerer     prometheus.Registerer // for our own metrics; nil means none

	// NewRing makes the ring of a source that is being bound: a stamp for each of
	// its devices, a cell for each of its columns. It runs where Open runs and may
	// wait like it; its error counts as one of Open. Nil means memory of this process.
	NewRing func(source collector.Source, rows int) (*ring.Ring, error)
	// Replaceable says that whoever runs this Sampler replaces the process where
	// Status tells CauseOutdated; until then what is open goes on. Otherwise it is
	// closed and opened again.
	Replaceable bool
	// Aside says that other collectors tell the states of these devices: they are
	// not among the metrics, so that nobody counts a device twice.
	Aside bool
	// OnPublish is told of each View after it is on the Board, in their order, by
	// one goroutine at a time. It must not block. Nil means nobody is told.
	OnPublish func(*view.View)
}

func (o Options) withDefaults() Options {
	o.Interval = max(cmp.Or(o.Interval, time.Second), MinInterval)
	o.SlowInterval = max(cmp.Or(o.SlowInterval, 30*time.Second), o.Interval)
	o.StaticInterval = max(cmp.Or(o.StaticInterval, 5*time.Minute), o.SlowInterval)
	o.Deadline = cmp.Or(o.Deadline, 5*time.Second)
	o.OpenTimeout = cmp.Or(o.OpenTimeout, 30*time.Second)
	o.RescanInterval = cmp.Or(o.RescanInterval, time.Minute)
	o.RetryMax = cmp.Or(o.RetryMax, 30*time.Second)
	o.LostMemory = cmp.Or(o.LostMemory, time.Hour)
	o.StopTimeout = cmp.Or(o.StopTimeout, 2*time.Second)
	o.RingSpan = cmp.Or(o.RingSpan, time.Minute)
	if o.NewRing == nil {
		o.NewRing = privateRing
	}
	if o.OnPublish == nil {
		o.OnPublish = func(*view.View) {}
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return o
}

// Sampler keeps a set of collectors open and sampled.
type Sampler struct {
	o       Options
	metrics *metrics
	keepers []*keeper

	board     view.Board
	publishMu sync.Mutex // guards the making of a new View
}

// New prepares a Sampler over the collectors of factories, in order of priority.
// Nothing is opened before Run.
func New(factories []collector.Factory, fields field.List, o Options) *Sampler {
	o = o.withDefaults()
	s := &Sampler{o: o, metrics: newMetrics()}
	for _, f := range factories {
		s.keepers = append(s.keepers, newKeeper(f, fields, o, s.metrics, s.publish))
	}
	if o.Registerer != nil {
		s.metrics.register(o.Registerer, s)
	}
	return s
}

// Board is where readers find the sources.
func (s *Sampler) Board() *view.Board { return &s.board }

// Run opens and samples until ctx ends. It returns nil after every library call
// has returned and every collector is closed, or an error that names what it
// had to abandon after Options.StopTimeout. Without any collector it waits for
// the end of ctx all the same. Call it once.
func (s *Sampler) Run(ctx context.Context) error {
	errs := make([]error, len(s.keepers))
	var wg sync.WaitGroup
	for i, k := range s.keepers {
		wg.Go(func() { errs[i] = k.run(ctx) })
	}
	wg.Wait()
	<-ctx.Done()
	return errors.Join(errs...)
}

// Reload replaces what is read. Each collector is opened a second time with the
// new fields while the first goes on, and takes over when it has rows for every
// device that was fresh. Reload returns once every collector serves the new
// list or has nothing to serve; a collector that cannot be opened again keeps
// the old list in service, is retried in the background, and is named in the
// error. If ctx ends first the change goes on in the background.
func (s *Sampler) Reload(ctx context.Context, fields field.List) error {
	var waits []<-chan error
	for _, k := range s.keepers {
		waits = append(waits, k.reload(fields))
	}
	var errs []error
	for _, w := range waits {
		select {
		case err := <-w:
			errs = append(errs, err)
		case <-ctx.Done():
			return errors.Join(append(errs, ctx.Err())...)
		}
	}
	return errors.Join(errs...)
}

// Again samples every source that has a fresh device once more, everything that it
// is asked for and beyond its schedule. It returns when the rows are there, or ctx
// ends: what anybody read before the call is older than they are.
func (s *Sampler) Again(ctx context.Context) {
	var all []*worker
	for _, k := range s.keepers {
		if b := k.current.Load(); b != nil {
			all = append(all, b.workersOf(b.freshDevices())...)
		}
	}
	again(ctx, all)
}

// Status tells the state of every collector and device, in order of priority.
// It reads memory only.
func (s *Sampler) Status() []CollectorStatus {
	now := time.Now()
	out := make([]CollectorStatus, len(s.keepers))
	for i, k := range s.keepers {
		out[i] = k.status(now)
	}
	return out
}

// publish makes a View of what the keepers have in service.
func (s *Sampler) publish() {
	s.publishMu.Lock()
	defer s.publishMu.Unlock()
	v := &view.View{Version: s.board.Load().Version + 1}
	for _, k := range s.keepers {
		if b := k.current.Load(); b != nil {
			for _, w := range b.workers {
				v.Sources = append(v.Sources, w.view)
			}
		}
	}
	s.board.Store(v)
	s.o.OnPublish(v)
}
