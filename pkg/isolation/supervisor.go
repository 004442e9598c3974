package isolation

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/field"
	"warpgauge/pkg/sampler"
)

// Supervisor keeps a child that samples one collector. It looks like a
// sampler.Sampler with one factory.
type Supervisor struct {
	o        Options
	log      *zap.Logger
	launcher *launcher
	metrics  *metrics

	wake  chan struct{} // the wish has changed
	told  chan struct{} // a child has said something or has ended
	state atomic.Pointer[tableau]

	wishMu  sync.Mutex
	wish    field.List
	version uint64
	waiters []waiter

	letGo    sampler.Rest // guarded by wishMu: why the child is to rest, 0 if it is not
	releases []chan error // that wait for that

	// Of Run alone.
	given     uint64   // version of the list that children were last given
	serving   *session // whose sources are on the board, alive or not
	candidate *session // that is to take over
	retired   []*session
	shown     []*boundSource // on the board
	servingAt time.Time      // when serving took over

	handOverAt time.Time              // when serving was asked to make room for candidate
	boundAt    time.Time              // when candidate had its sources in service
	startAt    time.Time              // of the next child; zero: none is wanted
	released   bool                   // no child is wanted
	parted     []sampler.DeviceStatus // of what was on the board before a release
	pauses     pauses
	idle       time.Duration // the pause after a child with nothing to sample
	restedFor  string        // what that child said
}

type waiter struct {
	version uint64
	done    chan error
}

// New prepares a Supervisor. Nothing is started before Run.
func New(fields field.List, o Options) *Supervisor {
	o = o.withDefaults()
	s := &Supervisor{
		o: o, log: o.Logger.Named("isolation").With(zap.String("collector", o.Name)),
		launcher: newLauncher(),
		wake:     make(chan struct{}, 1), told: make(chan struct{}, 1),
		wish: fields, version: 1, given: 1, pauses: pauses{longest: o.RestartMax},
	}
	s.metrics = newMetrics(s)
	s.state.Store(&tableau{cause: sampler.CauseOpening, reason: "not opened yet"})
	if o.Registerer != nil {
		o.Registerer.MustRegister(s.metrics)
	}
	return s
}

// Reload replaces what is read. It returns when the child serves the new list,
// or has nothing to serve; an error says that the old one stays in service for
// now. If ctx ends first the change goes on in the background.
func (s *Supervisor) Reload(ctx context.Context, fields field.List) error {
	done := make(chan error, 1)
	s.wishMu.Lock()
	s.wish = fields
	s.version++
	s.waiters = append(s.waiters, waiter{s.version, done})
	s.wishMu.Unlock()
	poke(s.wake)
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// answer tells the waiters for versions up to v.
func (s *Supervisor) answer(v uint64, err error) {
	s.wishMu.Lock()
	defer s.wishMu.Unlock()
	kept := s.waiters[:0]
	for _, w := range s.waiters {
		if w.version > v {
			kept = append(kept, w)
			continue
		}
		w.done <- err
	}
	s.waiters = kept
}

func (s *Supervisor) wished() (uint64, field.List) {
	s.wishMu.Lock()
	defer s.wishMu.Unlock()
	return s.version, s.wish
}

const forEver = ^uint64(0)

// poke fills a channel of one place.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run keeps a child until ctx ends, and ends it then. Its error names a child
// that it had to abandon. Call it once.
func (s *Supervisor) Run(ctx context.Context) error {
	lctx, release := context.WithCancel(context.WithoutCancel(ctx))
	var thread sync.WaitGroup
	thread.Go(func() { s.launcher.run(lctx) })
	defer thread.Wait()
	defer release()

	s.startAt = time.Now()
	look := time.NewTimer(0)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return s.stop()
		case <-s.wake:
			s.onWish()
		case <-s.told:
		case <-look.C:
		}
		s.advance(ctx, time.Now())
		look.Reset(s.untilNext(time.Now()))
	}
}

// advance takes every step that is due.
func (s *Supervisor) advance(ctx context.Context, now time.Time) {
	s.buryRetired()
	s.settleRelease()
	if c := s.candidate; c != nil {
		switch {
		case c.isDone():
			s.candidate = nil
			s.onEnd(c, now)
		case s.ready(c, now):
			if s.handedOver(c, now) {
				s.takeOver(c, now)
			}
		case s.hasNothing(c):
			c.stop(verdict{quiet, "has nothing to sample"}, s.o.StopTimeout)
		case s.outdated(c):
			s.replace(c)
		}
	}
	if v := s.serving; v != nil && s.startAt.IsZero() && s.candidate == nil {
		switch {
		case v.isDone():
			s.onEnd(v, now)
		case v.overLimit.Load() && !v.ending():
			s.recycle(v, now)
		case s.outdated(v):
			s.replace(v)
		}
	}
	if !s.startAt.IsZero() && !now.Before(s.startAt) && s.mayStart() {
		s.start(ctx, now)
	}
	var answers []reloaded
	if v := s.serving; v != nil && !v.isDone() {
		answers = v.takeAnswers() // before what they put into service is published
	}
	s.paint()
	for _, a := range answers {
		s.answerOf(a)
	}
}

func (s *Supervisor) answerOf(a reloaded) {
	if a.problem == "" {
		s.answer(a.version, nil)
		return
	}
	s.answer(a.version, errors.New(a.problem))
}

// untilNext returns when to look again though nobody says anything.
func (s *Supervisor) untilNext(now time.Time) time.Duration {
	const poll, rest = 10 * time.Millisecond, time.Second
	if c := s.candidate; c != nil && c.shown.Load() != nil {
		return poll // its rings fill without a word
	}
	if !s.startAt.IsZero() {
		return min(max(s.startAt.Sub(now), 0), rest)
	}
	return rest
}

// mayStart reports whether no other child is in the way: one that was killed and
// is still there holds its devices.
func (s *Supervisor) mayStart() bool {
	if s.candidate != nil {
		return false
	}
	for _, r := range s.retired {
		if r.stuck.Load() {
			return false
		}
	}
	v := s.serving
	return v == nil || v.isDone() || !v.ending()
}

func (s *Supervisor) start(ctx context.Context, now time.Time) {
	s.startAt = time.Time{}
	p, err := s.launcher.start(ctx, s.o.Command, s.o.Env)
	var c *session
	if err == nil {
		c, err = newSession(&s.o, p, s.log)
		if err != nil {
			_ = p.cmd.Process.Kill()
			p.wait()
		}
	}
	if err != nil {
		if ctx.Err() == nil {
			s.failed(verdict{ReasonStart, fmt.Sprintf("start child: %v", err)}, 0, now)
		}
		return
	}
	version, list := s.wished()
	c.notify = func() { poke(s.told) }
	c.beside = s.serving != nil && !s.serving.isDone()
	if s.restedFor != "" {
		c.relay.hold()
	}
	s.candidate, s.boundAt = c, time.Time{}
	go c.run(context.WithoutCancel(ctx), version, list)
}

// onWish heeds a release or its end, hands a new list to the children there are,
// and starts one if it rests.
func (s *Supervisor) onWish() {
	s.heedRelease()
	version, list := s.wished()
	if version == s.given {
		return
	}
	s.given = version
	given := false
	for _, c := range []*session{s.serving, s.candidate} {
		if c != nil && !c.isDone() && !c.ending() {
			c.reload(version, list)
			given = true
		}
	}
	if given {
		return
	}
	if len(s.shown) == 0 {
		s.answer(version, nil) // nothing to serve
	}
	if !s.startAt.IsZero() {
		s.startAt = time.Now()
	}
}
