// Package supervisor keeps one collector sampled: it starts a session, in this process or in a child process, waits for
// its end, and starts the next one. Reloads, changes of devices and drivers, memory limits, releases, standby, crashes
// and hangs all work the same way: a session ends and, if one is wanted, another begins. Two sessions of one collector
// never exist at once.
//
// The page does not notice. The sources of the old session stay published, with their last rows, until the next session
// has rows for the devices that were fresh, or its deadline has passed.
//
// Package exporter owns one Supervisor per collector; Run blocks until everything that it started has ended. A
// Supervisor and its sessions never share a goroutine or a lock with a scrape.
package supervisor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

// Wanted is the requested state of a collector.
type Wanted struct {
	List     field.List
	Released bool // an operator wants its library and driver to be free
	Standby  bool // another collector serves its devices
}

func (w Wanted) rests() bool { return w.Released || w.Standby }

// cause returns why a collector rests.
func (w Wanted) cause() (session.Cause, string) {
	if w.Released {
		return session.CauseReleased, "released: nothing is sampled until it is resumed"
	}
	return session.CauseStandby, "on standby: another collector serves its devices"
}

// Options configure New. Name and Page are required, and Open or Command; the other fields may be zero.
type Options struct {
	Name    string            // of the collector
	Open    collector.Factory // for sessions in this process
	Command []string          // arguments of a child process, starting with its name; nil: sessions run in this process
	// Environment lists the prefixes of variables that a child process may have for its library.
	Environment []string
	Session     session.Options       // sessions in this process use it; Deadline also applies to children
	Page        Page                  // shows the sources
	Present     func() (string, bool) // reports cheaply whether this machine has the vendor's devices, or what was looked for; nil: always, because a user has named the collector
	Hidden      bool                  // another collector exports the devices' metrics

	StopTimeout time.Duration // how long a session may take to end; its process is killed shortly before. 0 means 2 s
	// MemoryLimit is the resident size, in bytes, above which a child is replaced. 0 means no limit.
	MemoryLimit int64
	// RestartMax is the longest pause before a session; 0 means 30 s. The first pause is 100 ms; each failure doubles
	// it, and each second in service halves it.
	RestartMax time.Duration
	// FreshFor is how old a device's last row may be for the supervisor to wait for the next session's row of it. 0 means 30 s.
	FreshFor time.Duration

	// Output receives each line of a child's standard output and error that is not one of our log entries, for example
	// a vendor library's log. It must not block. Nil keeps only the last lines, for the log of the child's end.
	Output func(line string)

	Logger *zap.Logger // may be nil
}

// Page shows sources: a part of the board, or one end of a Failover. Publish must not block.
type Page interface {
	Publish(sources []*view.Source)
}

func (o Options) withDefaults() Options {
	o.Session.Deadline = cmp.Or(o.Session.Deadline, 5*time.Second)
	o.StopTimeout = cmp.Or(o.StopTimeout, 2*time.Second)
	o.RestartMax = cmp.Or(o.RestartMax, 30*time.Second)
	o.FreshFor = cmp.Or(o.FreshFor, 30*time.Second)
	o.Logger = cmp.Or(o.Logger, zap.NewNop())
	return o
}

// Supervisor keeps one collector sampled. New creates one.
type Supervisor struct {
	o   Options
	log *zap.Logger

	wake chan struct{} // signals a change of wanted
	now  atomic.Pointer[state]

	mu      sync.Mutex
	wanted  Wanted
	version uint64 // of wanted
	lists   uint64 // number of changes of the list
	waiters []waiter
	over    bool // Run has returned

	// Used by Run only.
	spare                    *child           // a process that waits for its next session; nil: none
	shown                    []*view.Source   // published sources
	until                    map[string]int64 // by device: published rows have its XIDs up to this time
	good                     field.List       // list of the last published session
	goodList                 uint64           // its change of the list; 0: none
	refused                  uint64           // the change of the list that no session could open; good is used instead
	killed                   int              // processes that a signal ended before they served killedList
	killedList               uint64           // its change of the list
	pauses                   pauses
	quiet                    quiet
	notBefore                time.Time // of the next session
	inventory                inventory
	logged                   map[string]string // by device: the last logged state
	loggedAbsent             string            // the last logged names of fields that no device has
	loggedAdded, loggedNamed string            // the same of fields that the list does not name, for extensions and for a dialect

	counts *counts
}

type waiter struct {
	version uint64
	done    chan error
}

// New returns a Supervisor with the wanted state w. It starts nothing before Run.
func New(w Wanted, o Options) *Supervisor {
	o = o.withDefaults()
	s := &Supervisor{
		o: o, log: o.Logger.Named("supervisor").With(zap.String("collector", o.Name)),
		wake: make(chan struct{}, 1), wanted: w, version: 1, lists: 1,
		pauses: pauses{longest: o.RestartMax}, logged: map[string]string{}, until: map[string]int64{},
		counts: newCounts(o.Name), inventory: inventory{absent: map[string]departed{}, numbers: map[string]string{}},
	}
	s.now.Store(&state{cause: session.CauseOpening, reason: "not opened yet"})
	return s
}

// Name returns the collector's name.
func (s *Supervisor) Name() string { return s.o.Name }

// Want changes the wanted state and returns when it is reached: the list is in service, the list does not concern this
// collector, or the collector has released everything. An error tells why it is not reached. If a list cannot be
// opened, the former list stays in service. If ctx ends first, the change still applies.
func (s *Supervisor) Want(ctx context.Context, change func(*Wanted)) error {
	done := s.Change(change)
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		if l := s.now.Load().life; l != nil && l.held() != "" {
			return fmt.Errorf("collector %q: %w: %s", s.o.Name, ctx.Err(), l.held())
		}
		return fmt.Errorf("collector %q: %w", s.o.Name, ctx.Err())
	}
}

// Change is Want without waiting: the channel receives the result.
func (s *Supervisor) Change(change func(*Wanted)) <-chan error {
	done := make(chan error, 1)
	s.mu.Lock()
	before := s.wanted.List
	change(&s.wanted)
	if !sameList(before, s.wanted.List) {
		s.lists++
	}
	s.version++
	s.waiters = append(s.waiters, waiter{s.version, done})
	over := s.over
	s.mu.Unlock()
	view.Offer(s.wake, struct{}{})
	if over {
		s.answer(allVersions, context.Canceled)
	}
	return done
}

// routine is the log level of each start of the collector. A process collector starts with each viewer of the page.
func (s *Supervisor) routine() zapcore.Level {
	if s.o.Hidden {
		return zap.DebugLevel
	}
	return zap.InfoLevel
}

// sameList reports whether two lists are the same one: lists are immutable.
func sameList(a, b field.List) bool {
	return a.Dialect == b.Dialect && len(a.Fields) == len(b.Fields) && (len(a.Fields) == 0 || &a.Fields[0] == &b.Fields[0])
}

// answer reports a result to the waiters for versions up to v.
func (s *Supervisor) answer(v uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiters = slices.DeleteFunc(s.waiters, func(w waiter) bool {
		if w.version > v {
			return false
		}
		w.done <- err
		return true
	})
}

// answerTurn reports a result to the waiters for r's state, including later ones: a change that changes nothing starts
// no other session.
func (s *Supervisor) answerTurn(r *request, err error) {
	v := r.version
	if now := s.request(); now.lists == r.lists && !now.rests() {
		v = now.version
	}
	s.answer(v, err)
}

const allVersions = ^uint64(0)

// request is the wanted state at one time.
type request struct {
	Wanted
	version uint64
	lists   uint64
}

func (s *Supervisor) request() request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return request{s.wanted, s.version, s.lists}
}

// Run keeps the collector in the wanted state until ctx ends. Its error names a session that does not end. It may be
// called once.
func (s *Supervisor) Run(ctx context.Context) error {
	defer func() {
		s.mu.Lock()
		s.over = true
		s.mu.Unlock()
		s.answer(allVersions, context.Canceled)
	}()
	if s.o.Command != nil {
		// The kernel sends a child its parent-death signal when the thread that started it ends, so this goroutine
		// keeps its thread.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	defer s.dropSpare()
	for ctx.Err() == nil {
		r := s.request()
		what, present := "", true
		if !r.rests() && s.o.Present != nil {
			what, present = s.o.Present()
		}
		if r.rests() || !present {
			s.dropSpare()
		}
		switch {
		case r.rests():
			s.rest(ctx, &r)
		case !present:
			s.setProblem(session.CauseNotLoaded, what)
			pause := s.quietly(s.routine(), what)
			s.answer(r.version, nil)
			s.pause(ctx, pause)
		case time.Now().Before(s.notBefore):
			s.pause(ctx, time.Until(s.notBefore))
		default:
			if err := s.live(ctx, &r); err != nil {
				return err
			}
		}
	}
	return nil
}

// rest waits, without a session, until another state is wanted.
func (s *Supervisor) rest(ctx context.Context, r *request) {
	cause, reason := r.cause()
	if s.now.Load().cause != cause && !(s.o.Hidden && r.Standby) {
		s.log.Info("collector is not sampled", zap.String("cause", string(cause)))
	}
	s.withdraw(cause, reason)
	s.answer(r.version, nil)
	select {
	case <-s.wake:
	case <-ctx.Done():
	}
	if next := s.request(); !next.rests() {
		s.log.Log(s.routine(), "collector is resumed")
		s.notBefore, s.pauses.level = time.Time{}, 0
		s.setProblem(session.CauseOpening, "being opened again")
	}
}

// withdraw removes everything from the page.
func (s *Supervisor) withdraw(cause session.Cause, reason string) {
	if len(s.shown) > 0 {
		s.inventory.part(s.now.Load().devices(s.o.Session.Deadline), cause, reason)
		s.publish(nil)
	}
	if cause != session.CauseReleased {
		s.inventory.parted = nil
	}
	s.setProblem(cause, reason)
}

// pause waits for d, or until another state is wanted.
func (s *Supervisor) pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	case <-s.wake:
		s.notBefore = time.Time{}
	}
}

// publish shows sources and the events of absent devices.
func (s *Supervisor) publish(sources []*view.Source) {
	s.remember()
	s.shown = sources
	if len(sources) > 0 {
		sources = slices.Concat(sources, s.inventory.events(sources[0].Fields))
	}
	s.o.Page.Publish(sources)
}

// remember records the times up to which the XIDs of the shown devices were reported. Only shown rows count.
func (s *Supervisor) remember() {
	var row ring.Row
	for _, src := range s.shown {
		if !src.Latest(&row) {
			continue
		}
		for i, c := range src.Columns {
			if v := row.Cells[i]; c.Field == field.XIDsUntil && v >= 0 && len(s.until) < maxDevices {
				s.until[src.Devices[c.Device].ID] = int64(v)
			}
		}
	}
}

// live runs one session to its end. Its error names a process that does not end although the exporter stops.
func (s *Supervisor) live(ctx context.Context, r *request) error {
	list, lists := r.List, r.lists
	if s.refused == r.lists && s.goodList != 0 {
		list, lists = s.good, s.goodList
	}
	l, err := s.start(list)
	if err != nil {
		s.failed(r, lists, ending{reason: ReasonStart, text: fmt.Sprintf("start child: %v", err)}, nil)
		return nil
	}
	if c, ok := l.(*child); ok {
		c.output.setQuiet(s.quiet.reason != "")
	}
	t := &turn{s: s, life: l, request: r, list: list, lists: lists, born: time.Now()}
	s.show(t)
	stuck := t.run(ctx)
	if c, ok := t.life.(*child); ok {
		s.counts.ended(c)
		if c.waiting() {
			s.spare = c
		}
	}
	if stuck && ctx.Err() != nil {
		return fmt.Errorf("stop collector %q: abandoned: %s", s.o.Name, cmp.Or(l.held(), "its library has not been closed yet"))
	}
	if ctx.Err() == nil {
		s.after(t)
	}
	return nil
}

// dropSpare ends the process that waits for its next session.
func (s *Supervisor) dropSpare() {
	c := s.spare
	if c == nil {
		return
	}
	s.spare = nil
	c.stop(s.o.StopTimeout * 7 / 8)
	select {
	case <-c.end:
	case <-time.After(s.o.StopTimeout):
	}
	s.counts.ended(c)
}

// after reacts to the end of a session.
func (s *Supervisor) after(t *turn) {
	e := t.life.ended()
	switch {
	case t.planned: // another state is wanted
		s.setHandover()
	case e.cause == session.CauseChanged:
		s.log.Info("devices changed; starting a new session")
		s.setHandover()
	case e.reason == "" && e.cause.Quiet():
		s.onQuiet(t, e)
	default:
		e.text = cmp.Or(e.text, "the session ended although it was not asked to")
		s.failed(t.request, t.lists, e, t)
	}
}

// onQuiet handles a session that found nothing to sample on this machine.
func (s *Supervisor) onQuiet(t *turn, e ending) {
	cause := e.cause
	s.counts.opens.WithLabelValues("error").Inc()
	level := s.routine()
	if s.o.Present == nil && cause != session.CauseNothing { // a user has named the collector
		level = zap.WarnLevel
	}
	pause := s.quietly(level, e.text)
	if cause == session.CauseNothing {
		s.withdraw(cause, e.text) // devices that the list no longer needs
		pause = max(pause, cmp.Or(s.o.Session.RescanInterval, time.Minute))
	}
	s.setProblem(cause, e.text)
	s.notBefore = time.Now().Add(pause)
	s.answerTurn(t.request, nil)
}

// maxKilled is how many processes may be killed with a new list. After that the list may be the cause, for example if
// its session needs more memory than there is.
const maxKilled = 3

// failed handles a session that ended unexpectedly or could not begin.
func (s *Supervisor) failed(r *request, lists uint64, e ending, t *turn) {
	s.quiet = quiet{}
	var served time.Duration
	published := t != nil && !t.published.IsZero()
	if published && e.reason != ReasonHung {
		served = time.Since(t.published)
	}
	if !published {
		s.counts.opens.WithLabelValues("error").Inc()
	}
	cause := cmp.Or(e.cause, session.CauseError)
	if e.reason != "" {
		s.counts.ends.WithLabelValues(e.reason).Inc()
		s.counts.restarts.Inc()
		if cause != session.CauseOutdated {
			cause = session.CauseChild
		}
	}
	pause := s.pauses.next(served)
	if cause == session.CauseOutdated && pause <= firstPause { // not repeatedly
		pause = 0
	}
	s.notBefore = time.Now().Add(pause)
	fields := []zap.Field{zap.String("cause", cmp.Or(e.reason, string(cause))), zap.String("reason", e.text), zap.Duration("pause", pause)}
	if t != nil {
		fields = append(fields, t.life.logFields()...)
	}
	err := fmt.Errorf("collector %q: %s", s.o.Name, e.text)
	if !published && s.goodList != 0 && lists != s.goodList {
		if e.reason == ReasonSignal { // it says nothing about the list
			if s.killedList != lists {
				s.killed, s.killedList = 0, lists
			}
			if s.killed++; s.killed < maxKilled {
				s.log.Warn("session ended; starting another one with the new list", fields...)
				return
			}
		}
		s.refused, s.notBefore = lists, time.Now()
		s.log.Warn("cannot apply the new list; keeping the former one", fields...)
		err = fmt.Errorf("collector %q cannot be opened with the new list, the former one stays in service: %s", s.o.Name, e.text)
	} else if old := s.now.Load(); published || old.cause != cause || old.reason != e.text {
		s.log.Warn("session ended; starting another one", fields...)
	}
	s.setProblem(cause, e.text)
	s.answerTurn(r, err)
}

// start begins a session.
func (s *Supervisor) start(list field.List) (life, error) {
	s.remember()
	if s.o.Command == nil {
		return startLocal(list, maps.Clone(s.until), &s.o), nil
	}
	if c := s.spare; c != nil {
		if c.begin(list, s.until) {
			s.spare = nil
			return c, nil
		}
		s.dropSpare()
	}
	return startChild(list, s.until, &s.o, s.log)
}

// turn is one session from its start to its end.
type turn struct {
	s       *Supervisor
	life    life
	request *request
	list    field.List
	lists   uint64 // its change of the list
	born    time.Time

	sources   []*view.Source // with the GPUs' former numbers; nil until they are bound
	bound     time.Time      // when the sources were bound; zero: not yet
	published time.Time      // when they were published; zero: not yet
	planned   bool           // it ends because another state is wanted
	relisted  time.Time      // when another list was requested, while calls delay its end; zero: not
	stopped   time.Time      // when its end was requested; zero: not
}

// Times of a turn.
const (
	checkEvery    = time.Second           // for states that no message reports
	measureEvery  = 5 * time.Second       // of a child's memory and CPU time
	rowsEvery     = 10 * time.Millisecond // while waiting for first rows
	killGrace     = 5 * time.Second       // how long SIGKILL may take; a process in uninterruptible sleep does not end
	startPatience = 3 * time.Second       // before a device without a sample is logged; DCGM takes 1.5 s
	stopSlack     = 250 * time.Millisecond
)

// run returns when the session has ended. It returns true if the exporter stops but the session does not.
func (t *turn) run(ctx context.Context) (stuck bool) {
	s := t.s
	stop, next := ctx.Done(), checkEvery
	var abandon <-chan time.Time
	for {
		select {
		case <-t.life.done():
			return false
		case <-stop:
			stop = nil
			t.planned = true
			t.stop()
			abandon = time.After(s.o.StopTimeout + stopSlack)
		case <-abandon:
			return true
		case <-s.wake:
		case <-t.life.changed():
		case <-view.Tick(next):
		}
		if abandon == nil {
			t.advance()
		}
		if next = checkEvery; !t.bound.IsZero() && t.published.IsZero() || !t.relisted.IsZero() && t.stopped.IsZero() {
			next = rowsEvery
		}
	}
}

func (t *turn) stop() {
	t.stopped = time.Now()
	t.life.stop(t.s.o.StopTimeout * 7 / 8) // ending after SIGKILL takes time, too
}

// advance takes every due step.
func (t *turn) advance() {
	s := t.s
	now := time.Now()
	t.life.check(now)
	t.obey()
	if t.sources == nil {
		if sources := t.life.sources(); sources != nil {
			t.sources = s.inventory.renumber(s.inventory.identify(sources))
			t.bound = now
		}
	}
	if t.sources != nil && t.stopped.IsZero() && t.published.IsZero() &&
		(now.Sub(t.bound) >= s.o.Session.Deadline || complete(s.shown, t.sources, now, s.o.FreshFor, patientRows)) {
		t.publish(now)
	}
	s.show(t)
	s.logStates(t)
}

// obey ends the session if another state is wanted.
func (t *turn) obey() {
	s := t.s
	r := s.request()
	switch {
	case !t.stopped.IsZero():
	case r.rests():
		t.planned = true
		cause, reason := r.cause()
		s.withdraw(cause, reason)
		t.stop()
	case r.lists != t.request.lists && t.sources != nil && t.published.IsZero():
		// Its rows may have events that no reader has seen yet.
	case r.lists != t.request.lists:
		// Ending it during a call would remove all devices from the page until the call returns.
		if held := t.life.held(); held != "" && s.o.Command == nil && !t.published.IsZero() {
			t.relisted = time.Time{}
			s.answer(r.version, fmt.Errorf("collector %q keeps the former list until a call returns: %s; --isolation=process does not have to wait", s.o.Name, held))
			return
		}
		if t.relisted.IsZero() {
			t.relisted = time.Now()
		}
		if !t.published.IsZero() && !t.life.returned(t.relisted) {
			return
		}
		t.planned, t.stopped = true, time.Now()
		t.life.finish(s.o.StopTimeout * 7 / 8)
	case r.version != t.request.version && !t.published.IsZero():
		s.answer(r.version, nil) // nothing changes
	}
}

// publish puts the sources on the page.
func (t *turn) publish(now time.Time) {
	s, sources := t.s, t.sources
	t.published = now
	if c, ok := t.life.(*child); ok {
		c.output.setQuiet(false)
	}
	s.counts.opens.WithLabelValues("success").Inc()
	s.quiet = quiet{}
	s.inventory.update(sources, s.shown, s.now.Load().devices(s.o.Session.Deadline), s.log, now)
	s.good, s.goodList = t.list, t.lists
	s.publish(sources)
	s.log.Log(s.routine(), "collector is in service", zap.Int("sources", len(sources)), zap.Int("devices", deviceCount(sources)),
		zap.Duration("took", now.Sub(t.born).Round(time.Millisecond)))
	if !s.o.Hidden {
		s.logFields(sources)
	}
	s.show(t) // before the answer, because a waiter may look at once
	if t.lists == t.request.lists {
		s.answer(t.request.version, nil)
	}
}
