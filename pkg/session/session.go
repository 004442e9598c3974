// Package session is one life of a collector: open the library, bind one field list to the devices found, sample each
// source on its own goroutine into rings, close. A session never changes its list, its devices or its library; if one
// of them has to change, the session ends and package supervisor, which owns sessions, starts the next one.
//
// Run blocks until every library call has returned and the collector is closed. Status and Costs can be read from any
// goroutine at any time; neither waits for a library call.
package session

import (
	"cmp"
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
	"warpgauge/pkg/view"
)

// MinInterval is the shortest tick.
const MinInterval = 10 * time.Millisecond

const (
	// OpenTimeout is the deadline in the context of Open and Rescan.
	OpenTimeout = 30 * time.Second
	// ChangeSpacing is the minimum life of a session that a change of devices ends.
	ChangeSpacing = 2 * time.Second

	// scanSpacing is the minimum time between two scans for devices.
	scanSpacing = time.Second
	// maxBackOff is the longest pause of a source whose calls fail.
	maxBackOff = 30 * time.Second
)

// Options configure New. The zero value is usable.
type Options struct {
	Interval       time.Duration // tick of field.EachTick readings; 0 means 1 s, at least MinInterval
	SlowInterval   time.Duration // of field.Slow readings; 0 means 30 s, at least Interval
	Deadline       time.Duration // a library call that takes longer makes its devices stalled; 0 means 5 s
	RescanInterval time.Duration // how often to scan for other devices; 0 means 1 min
	RingSpan       time.Duration // minimum time that a ring holds; 0 means 1 min. A ring has 16 to 1024 rows
	Select         Selection     // selected devices; the zero value selects all
	// Until holds, by device, until when earlier sessions have reported XIDs, for a collector.Resumer.
	Until map[string]int64
	// Former is the previous session in the same process; this one inherits its event sets. Nil: there was none.
	Former *Session
	// Keep leaves the event sets open for the next session, whose Former is this one.
	Keep   bool
	Logger *zap.Logger // may be nil
	Parent Parent      // nil: of this process
}

// Parent is the process that reads the rows of a session in a child.
type Parent interface {
	// Memory returns zeroed memory with the given number of words for all rings of the session, and an owner that must
	// stay reachable while the memory is in use.
	Memory(words int) (mem []atomic.Uint64, owner any, err error)
	// Publish receives the sources once, when they are bound. It must not block.
	Publish(sources []*view.Source)
}

// heap is the Parent of a session in the exporter's own process, whose readers use Sources.
type heap struct{}

func (heap) Memory(words int) ([]atomic.Uint64, any, error) {
	return make([]atomic.Uint64, words), nil, nil
}

func (heap) Publish([]*view.Source) {}

func (o Options) withDefaults() Options {
	o.Interval = max(cmp.Or(o.Interval, time.Second), MinInterval)
	o.SlowInterval = max(cmp.Or(o.SlowInterval, 30*time.Second), o.Interval)
	o.Deadline = cmp.Or(o.Deadline, 5*time.Second)
	o.RescanInterval = cmp.Or(o.RescanInterval, time.Minute)
	o.RingSpan = cmp.Or(o.RingSpan, time.Minute)
	o.Parent = cmp.Or[Parent](o.Parent, heap{})
	o.Logger = cmp.Or(o.Logger, zap.NewNop())
	return o
}

// Session is one life of a collector. New creates one.
type Session struct {
	collector collector.Collector
	name      string
	list      field.List
	o         Options
	born      time.Time
	notices   chan error    // from workers: ErrColumnsChanged, ErrDeviceLost, ErrOutdated
	changed   chan struct{} // receives when the sources are bound or a device's status changes

	rescanErrors atomic.Uint64
	leftOut      atomic.Int64
	bound        atomic.Pointer[binding] // nil until the sources are bound
}

// binding holds the sources of a session and the goroutines that sample them.
type binding struct {
	workers     []*worker
	sources     []*view.Source
	implausible map[string]*atomic.Uint64 // dropped values, by field
}

// New prepares a session. It opens nothing before Run.
func New(open collector.Factory, list field.List, o Options) *Session {
	c := open()
	return &Session{
		collector: c, name: c.Name(), list: list, o: o.withDefaults(), born: time.Now(),
		notices: make(chan error, 1), changed: make(chan struct{}, 1),
	}
}

// Run opens, samples and closes. It returns nil if ctx ended, and otherwise why the session had to end: an error of
// Open, ErrColumnsChanged or ErrOutdated. When it returns, everything that it started has ended, however long a library
// call takes. It may be called once.
func (s *Session) Run(ctx context.Context) error {
	if r, ok := s.collector.(collector.Resumer); ok {
		r.Resume(s.o.Until)
	}
	if k, ok := s.collector.(collector.Keeper); ok && s.o.Keep {
		if s.o.Former != nil {
			k.Inherit(s.o.Former.collector)
		}
		k.Keep()
	}
	s.o.Former = nil // its rings
	octx, stop := context.WithTimeout(ctx, OpenTimeout)
	sources, err := s.collector.Open(octx, s.list)
	stop()
	switch {
	case err != nil && ctx.Err() != nil:
		return nil
	case err != nil:
		return err
	}
	b, err := s.bind(sources)
	if err != nil {
		return errors.Join(err, s.collector.Close())
	}
	wctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Before the first row, because a row wakes readers that look for its source.
	s.bound.Store(b)
	s.o.Parent.Publish(b.sources)
	view.Offer(s.changed, struct{}{})
	var workers sync.WaitGroup
	for _, w := range b.workers {
		workers.Go(func() { w.run(wctx) })
	}
	err = s.watch(ctx)
	cancel()
	workers.Wait()
	if cerr := s.collector.Close(); cerr != nil {
		err = errors.Join(err, fmt.Errorf("close collector %q: %w", s.name, cerr))
	}
	return err
}

// Release closes the event sets that Options.Keep left open, if no session follows.
func (s *Session) Release() {
	if k, ok := s.collector.(collector.Keeper); ok {
		k.Release()
	}
}

// watch returns when the session must end; nil if ctx has ended.
func (s *Session) watch(ctx context.Context) error {
	rescan := time.NewTicker(s.o.RescanInterval)
	defer rescan.Stop()
	end := time.NewTimer(time.Hour)
	end.Stop()
	defer end.Stop()
	var due time.Time // when it should have ended; zero: not yet
	var scanning sync.WaitGroup
	defer scanning.Wait() // a running scan must end before Close
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // asks the scan to end
	scans := make(chan scanned, 1)
	busy, last := false, time.Time{}
	scan := func() {
		r, ok := s.collector.(collector.Rescanner)
		if !ok || busy || time.Since(last) < scanSpacing {
			return
		}
		busy, last = true, time.Now()
		scanning.Go(func() {
			sctx, cancel := context.WithTimeout(ctx, OpenTimeout)
			defer cancel()
			changed, err := r.Rescan(sctx)
			scans <- scanned{changed, err}
		})
	}
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-end.C:
			if due.IsZero() {
				due = time.Now()
			}
			if _, local := s.o.Parent.(heap); local && !s.Returned(due) { // only the end of the process would free the call
				end.Reset(lookEvery)
				continue
			}
			return collector.ErrColumnsChanged
		case <-rescan.C:
			scan()
			continue
		case err = <-s.notices:
		case r := <-scans:
			busy = false
			if err = r.err; err == nil && r.changed {
				err = collector.ErrColumnsChanged
			} else if err != nil && ctx.Err() == nil {
				s.rescanErrors.Add(1)
			}
		}
		switch {
		case errors.Is(err, collector.ErrOutdated):
			return err
		case errors.Is(err, collector.ErrColumnsChanged) && errors.Is(err, collector.ErrNotLoaded):
			return collector.ErrColumnsChanged // no need to wait
		case errors.Is(err, collector.ErrColumnsChanged):
			end.Reset(max(0, ChangeSpacing-time.Since(s.born)))
		case errors.Is(err, collector.ErrDeviceLost):
			scan()
		}
	}
}

// lookEvery is the pause between two looks for calls that delay the end.
const lookEvery = 100 * time.Millisecond

// Returned reports whether every library call that ran at a time has returned. If the session ends
// earlier, no device is sampled until the last of these calls returns.
func (s *Session) Returned(at time.Time) bool {
	b, now := s.bound.Load(), time.Now()
	return b == nil || !slices.ContainsFunc(b.workers, func(w *worker) bool { return w.inCall(now) > max(0, now.Sub(at)) || w.asking.Load() })
}

// scanned holds the result of a Rescan.
type scanned struct {
	changed bool
	err     error
}

// notify is called by workers. It drops a notice while another one waits, because the source reports it again on the
// next tick.
func (s *Session) notify(err error) { view.Offer(s.notices, err) }

// Changed receives a value when the sources are bound or the status of a device changes. A call that hangs sends
// nothing; Status reports it.
func (s *Session) Changed() <-chan struct{} { return s.changed }

// Sources returns the sampled sources, nil until they are bound. The result is shared and must not be changed.
func (s *Session) Sources() []*view.Source {
	if b := s.bound.Load(); b != nil {
		return b.sources
	}
	return nil
}

// Status reports the state of the collector and its devices. It reads memory only.
func (s *Session) Status() CollectorStatus {
	st := CollectorStatus{Name: s.name, Cause: CauseOpening, Reason: "being opened"}
	b := s.bound.Load()
	if b == nil {
		return st
	}
	st.Up, st.Cause, st.Reason = true, CauseNone, ""
	now := time.Now()
	for _, w := range b.workers {
		for i := range w.view.Devices {
			st.Devices = append(st.Devices, w.device(i, now))
		}
	}
	return st
}

// Costs returns what the session has counted. It reads memory only.
func (s *Session) Costs() *Costs {
	c := &Costs{
		Collector: s.name, Began: s.born, RescanErrors: s.rescanErrors.Load(), LeftOut: s.leftOut.Load(),
		Sources: map[string]SourceCost{}, Calls: map[string]collector.CallCost{}, Implausible: map[string]uint64{},
	}
	b := s.bound.Load()
	if b == nil {
		return c
	}
	for _, w := range b.workers {
		c.Sources[w.view.Devices[0].ID] = w.counters.cost()
		if m, ok := w.source.(collector.CallMeter); ok {
			for _, cost := range m.Calls() {
				was := c.Calls[cost.Call]
				c.Calls[cost.Call] = collector.CallCost{Count: was.Count + cost.Count, Time: was.Time + cost.Time}
			}
		}
	}
	for name, n := range b.implausible {
		c.Implausible[name] = n.Load()
	}
	return c
}
