package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"warpgauge/extensions/remote/transport"
	"warpgauge/pkg/field"
	"warpgauge/pkg/lists"
)

// Manager decides on a server's lists and proposes the accepted ones to the Desk. Deliver, Answered, Unreachable and Refused
// are safe for concurrent use.
type Manager struct {
	o      Options
	origin string // the server's; lists from other origins are not used
	guard  Guard
	log    *zap.Logger
	save   func(*kept) error
	wake   chan struct{} // Run's next wake-up time has changed

	// Guarded by the Desk's Turn.
	kept    kept
	last    []byte     // last parsed content
	trial   trial      // of the list in service
	back    *returning // why the list in service must go; nil: it stays
	changes *rate.Limiter
	costly  map[string]string // by hash: why a list was withdrawn
	failure failure

	saving  sync.Mutex           // held while the state is written
	unsaved atomic.Pointer[kept] // nil: everything is written

	inService atomic.Pointer[List] // nil: the local list
	mu        sync.Mutex
	delivery  lists.Delivery
}

// Time limit and rate limit of changes.
const (
	applyTimeout = time.Minute
	maxChanges   = 10
	changesIn    = 10 * time.Minute
	firstRetry   = time.Minute // after a list could not be applied
	lastRetry    = time.Hour
)

// newManager returns a Manager. It serves no list before restore or Deliver.
func newManager(o Options) *Manager {
	origin := transport.Origin(o.Settings.URL)
	m := &Manager{
		o: o, origin: origin, guard: newGuard(o.Settings), log: o.Logger.Named("remote").With(zap.String("origin", origin)),
		save: directory(o.Settings.Directory).write, wake: make(chan struct{}, 1), costly: map[string]string{},
		changes: rate.NewLimiter(rate.Every(changesIn/maxChanges), maxChanges),
	}
	m.update(func(s *lists.Delivery) {
		*s = lists.Delivery{Mode: o.Settings.Mode, Origin: origin, Status: lists.Waiting, Text: "no list was delivered yet", Since: time.Now()}
	})
	return m
}

// reports tells whether lists are only checked and compared.
func (m *Manager) reports() bool { return m.o.Settings.Mode == ModeReport }

// restore serves the saved list, so that the exporter can start without the server. New calls it once, before the engine
// runs.
func (m *Manager) restore() {
	if m.reports() {
		return
	}
	k, err := directory(m.o.Settings.Directory).load()
	if err != nil {
		m.log.Warn("cannot read the saved field list", zap.Error(err))
		m.update(func(s *lists.Delivery) { s.Unkept = err.Error() })
		return
	}
	m.kept = k
	l := m.former()
	if m.inService.Store(l); l != nil {
		m.o.Desk.Restore(l.service())
		m.recordOutcome(lists.Applied, "the list that was kept is in service", l.Hash, nil)
	}
}

// former returns the saved list that should serve. nil means the local list.
func (m *Manager) former() *List {
	for _, l := range []*List{m.kept.Passing, m.kept.Lasting} {
		if l == nil {
			continue
		}
		err := m.revive(l)
		if err == nil {
			return l
		}
		m.log.Warn("cannot restore the saved field list", zap.String("hash", l.Hash), zap.Error(err))
	}
	return nil
}

// revive prepares a saved list for service. Limits may have changed since, and the list may have ended.
func (m *Manager) revive(l *List) error {
	if l.Origin != m.origin {
		return fmt.Errorf("it came from %s, not from %s", l.Origin, m.origin)
	}
	if l.Hash != hashOf(l.Content) {
		return errSum
	}
	if err := l.ended(); err != nil {
		return err
	}
	p := m.parse(&l.Offer)
	l.Fields = p.Fields
	refused, err := m.guard.Examine(p, m.o.Engine.Board().Load())
	for _, r := range refused {
		err = errors.Join(err, errors.New(r.String()))
	}
	return err
}

// errEnded tells the server's operator how to replace an ended list.
var errEnded = errors.New("deliver another list, or this one with another comment")

// parse parses a list and logs its warnings, except for the same list twice in a row: the server sends a refused list
// with every answer.
func (m *Manager) parse(o *lists.Offer) *lists.Parsed {
	p := m.guard.Parse(o, m.o.Desk)
	if bytes.Equal(o.Content, m.last) {
		return p
	}
	m.last = o.Content
	warnings := 0
	for i := range p.Problems {
		if w := &p.Problems[i]; w.Severity != field.Error && warnings < maxWarnings {
			warnings++
			m.log.Warn("list of the server: "+w.Message, zap.Int("line", w.Line))
		}
	}
	return p
}

// maxWarnings bounds the logged warnings per list.
const maxWarnings = 20

// Deliver applies or refuses an offer and returns the outcome. An offer without content withdraws the server's list.
// Concurrent calls run one after the other.
func (m *Manager) Deliver(ctx context.Context, o *lists.Offer) *lists.Outcome {
	tried := hashOf(o.Content)
	var out *lists.Outcome
	err := m.inTurn(ctx, func(ctx context.Context, t *lists.Turn) {
		out = m.decide(ctx, t, o, tried)
		if l := m.inService.Load(); l != nil && out.Answer != lists.Reported {
			out.Until = l.Until
		}
	})
	if err != nil {
		out = &lists.Outcome{Answer: lists.Failed, Err: err}
	}
	out.Tried, out.Running = tried, m.running()
	return out
}

// inTurn calls do in a Turn of the Desk, with a time limit for changes, and saves the state after the Turn, so that a
// hanging disk delays no other change.
func (m *Manager) inTurn(ctx context.Context, do func(ctx context.Context, t *lists.Turn)) error {
	t, err := m.o.Desk.Begin(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	do(ctx, t)
	t.End()
	if m.unsaved.Load() != nil {
		m.keep()
	}
	return nil
}

// running returns the hash of the list in service.
func (m *Manager) running() string {
	if l := m.inService.Load(); l != nil {
		return l.Hash
	}
	s := m.o.Desk.Status()
	return s.Local.Hash
}

// decide implements Deliver. The caller holds the Turn.
func (m *Manager) decide(ctx context.Context, t *lists.Turn, o *lists.Offer, tried string) *lists.Outcome {
	m.Answered()
	if l := m.inService.Load(); l != nil && l.Hash == tried {
		m.revise(ctx, t, l, o.Revision)
		m.recordOutcome(lists.Applied, "", tried, nil)
		return &lists.Outcome{Answer: lists.Unchanged}
	}
	said := func(a lists.Answer, text string) *lists.Outcome {
		m.recordOutcome(a, text, tried, nil)
		return &lists.Outcome{Answer: a}
	}
	failed := func(a lists.Answer, err error, refused []lists.Refusal) *lists.Outcome {
		text := bounded(err.Error())
		m.recordOutcome(a, text, tried, refused)
		return &lists.Outcome{Answer: a, Err: errors.New(text), Refused: refused}
	}
	if len(o.Content) == 0 {
		if m.reports() {
			return said(lists.Reported, "the server has no list for this node")
		}
		if err := m.withdraw(ctx, t); err != nil {
			return failed(lists.Failed, err, nil)
		}
		return said(lists.Applied, "the server has no list for this node; the local list serves")
	}
	if why := m.costly[tried]; why != "" {
		return failed(lists.Refused, errors.New(why), []lists.Refusal{{Text: why}})
	}
	next := &List{Offer: *o, Hash: tried}
	next.Origin = m.origin                  // the source's name for it can be longer
	next.Until, _ = readValidity(o.Content) // Guard.Parse reports the invalid lines
	if err := next.ended(); err != nil {
		return failed(lists.Ended, err, nil)
	}
	p := m.parse(o)
	refused, err := m.guard.Examine(p, m.o.Engine.Board().Load())
	if err != nil {
		return failed(lists.Refused, err, refused)
	}
	next.Fields = p.Fields
	if m.reports() {
		return said(lists.Reported, m.difference(p.Fields))
	}
	if err := m.tooOften(tried); err != nil {
		return failed(lists.Failed, err, nil)
	}
	if err := m.apply(ctx, t, next); err != nil {
		if errors.Is(err, errRefused) {
			m.refuseAgain(tried, err.Error())
			return failed(lists.Refused, err, []lists.Refusal{{Text: err.Error()}})
		}
		m.failure = failure{tried, min(max(firstRetry, 2*m.failure.pause), lastRetry), time.Now(), err}
		return failed(lists.Failed, err, nil)
	}
	m.failure = failure{}
	return said(lists.Applied, "")
}

// revise records a new revision of the list in service.
func (m *Manager) revise(ctx context.Context, t *lists.Turn, l *List, revision string) {
	next := *l
	if next.Revision = revision; l.Revision == revision || t.Serve(ctx, next.service()) != nil {
		return
	}
	m.inService.Store(&next)
	for _, k := range []**List{&m.kept.Passing, &m.kept.Lasting} {
		if *k == l {
			*k = &next
		}
	}
}

// failure is the last failed attempt to apply a list.
type failure struct {
	list  string // hash, or ""
	pause time.Duration
	at    time.Time
	err   error
}

// tooOften returns an error after too many changes, or too soon after a list failed: each change restarts the session of every
// collector.
func (m *Manager) tooOften(list string) error {
	now := time.Now()
	if f := &m.failure; f.list != list {
		m.failure = failure{}
	} else if left := f.pause - now.Sub(f.at); left > 0 {
		return fmt.Errorf("%w; it is tried again after %v", f.err, f.pause)
	}
	if m.changes.Allow() {
		return nil
	}
	return fmt.Errorf("the server has changed the list %d times in %v; the next change waits", maxChanges, changesIn)
}

// maxCostly bounds the remembered refusals.
const maxCostly = 64

// refuseAgain makes the manager refuse a list that did harm in service.
func (m *Manager) refuseAgain(list, why string) {
	if len(m.costly) >= maxCostly {
		clear(m.costly)
	}
	m.costly[list] = why
}

// apply puts a list into service and saves it.
func (m *Manager) apply(ctx context.Context, t *lists.Turn, l *List) error {
	before := m.inService.Load()
	if err := t.Serve(ctx, l.service()); err != nil {
		return err
	}
	m.o.Page.Sync(time.Now())
	if n := m.o.Page.Series(); n > m.guard.Series {
		back, cancel := context.WithTimeout(context.WithoutCancel(ctx), applyTimeout)
		defer cancel()
		err := t.Serve(back, before.service())
		return errors.Join(fmt.Errorf("%w: in service it made %d series, which is more than %d (--remote-limit series); the former list is back", errRefused, n, m.guard.Series), err)
	}
	m.back = nil
	m.trial = trial{list: l.Hash, began: time.Now(), last: newCosts(m.o.Engine.Costs()), passing: m.kept.Passing, lasting: m.kept.Lasting}
	m.inService.Store(l)
	if m.kept.Passing = l; l.Until.IsZero() {
		m.kept.Passing, m.kept.Lasting = nil, l
	}
	m.setKept()
	select {
	case m.wake <- struct{}{}:
	default: // Run has a wake-up pending
	}
	return nil
}

// withdraw puts the local list into service and forgets the server's lists.
func (m *Manager) withdraw(ctx context.Context, t *lists.Turn) error {
	if m.inService.Load() != nil {
		if err := t.Serve(ctx, nil); err != nil {
			return err
		}
	}
	m.back, m.trial = nil, trial{}
	m.inService.Store(nil)
	m.kept.Passing, m.kept.Lasting = nil, nil
	m.setKept()
	return nil
}

// setKept marks kept as unsaved. The caller holds the Turn.
func (m *Manager) setKept() {
	k := m.kept
	m.unsaved.Store(&k)
}

// keep writes the state. If the disk is full, the list stays in service.
func (m *Manager) keep() {
	m.saving.Lock()
	defer m.saving.Unlock()
	k := m.unsaved.Swap(nil)
	if k == nil {
		return // another goroutine wrote it
	}
	err := m.save(k)
	m.update(func(s *lists.Delivery) {
		if s.Unkept = ""; err != nil {
			s.Unkept = err.Error()
			m.log.Error("cannot save the list in service; a start without the server uses an older one", zap.Error(err))
		}
	})
}

// difference describes the changes between the list in service and another list.
func (m *Manager) difference(list field.List) string {
	now := m.o.Desk.Status().InService.Fields
	lines := func(l field.List) map[string]string {
		out := map[string]string{}
		for i := range l.Fields {
			f := &l.Fields[i]
			out[f.Name] += fmt.Sprint(f.Type, f.Interval, f.Buckets, f.Help)
		}
		return out
	}
	was, is := lines(now), lines(list)
	series, _ := newInventory(m.o.Engine.Board().Load()).all(list)
	return fmt.Sprintf("it would be applied: adds %s; removes %s; changes %s; up to %d series",
		some(is, func(name string) bool { return was[name] == "" }), some(was, func(name string) bool { return is[name] == "" }),
		some(is, func(name string) bool { return was[name] != "" && was[name] != is[name] }), series)
}

// some returns the first few names that chosen accepts, as text.
func some(lines map[string]string, chosen func(name string) bool) string {
	const most = 10
	var names []string
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		if chosen(name) {
			names = append(names, name)
		}
	}
	switch {
	case len(names) == 0:
		return "nothing"
	case len(names) > most:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], " "), len(names)-most)
	}
	return strings.Join(names, " ")
}

// trial measures the cost of a new list.
type trial struct {
	list             string // hash, or ""
	began            time.Time
	last             costs
	passing, lasting *List // saved lists before the change
}

// returning tells why the list in service must go.
type returning struct {
	answer  lists.Answer
	why     string
	refused []lists.Refusal
}

// Times of a trial. trialStep lets slow fields be read at their usual interval.
const (
	trialStep  = 30 * time.Second
	wallPoll   = 5 * time.Second // longest time until a step of the wall clock is noticed
	retryAfter = 10 * time.Second
)

// Run ends expired lists and lists that cost too much, until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.wake:
		case <-timer.C:
		}
		var next time.Duration
		if m.inTurn(ctx, func(ctx context.Context, t *lists.Turn) { next = m.check(ctx, t) }) != nil {
			return nil
		}
		timer.Stop()
		if next > 0 {
			timer.Reset(next)
		}
	}
}

// check ends the list in service if it has expired or costs too much. It returns the time until the next check, or 0 to
// wait for the next list.
func (m *Manager) check(ctx context.Context, t *lists.Turn) (next time.Duration) {
	l := m.inService.Load()
	if l == nil {
		return 0
	}
	now := time.Now()
	if m.back == nil && l.ended() != nil {
		m.back = &returning{lists.Ended, "the time of the list was over at " + l.Until.Format(time.RFC3339), nil}
		m.kept.Passing = nil
	}
	if m.back == nil && m.trial.list == l.Hash {
		if due := trialStep - now.Sub(m.trial.began); due > 0 {
			next = due
		} else if why := m.overBudget(now); why != "" {
			m.refuseAgain(l.Hash, why)
			m.back = &returning{lists.Refused, why, []lists.Refusal{{Text: why}}}
			m.kept.Passing, m.kept.Lasting = m.trial.passing, m.trial.lasting
		}
	}
	if m.back != nil {
		if !m.serveFormer(ctx, t, l) {
			return retryAfter
		}
		return m.check(ctx, t)
	}
	wait := min(max(time.Until(l.Until), time.Millisecond), wallPoll)
	if !l.Until.IsZero() && (next == 0 || wait < next) {
		next = wait
	}
	return next
}

// overBudget ends the trial of the list in service. It returns why the list costs too much, or "".
func (m *Manager) overBudget(now time.Time) string {
	t := &m.trial
	cost := newCosts(m.o.Engine.Costs()).since(t.last).Seconds() / now.Sub(t.began).Seconds()
	t.list = ""
	if cost <= m.guard.Cost {
		return ""
	}
	return fmt.Sprintf("in service the list took %.3f seconds in vendors' libraries per second, which is more than %v (--remote-limit cost)", cost, m.guard.Cost)
}

// serveFormer replaces l with the previous list, or with the local one. It reports success.
func (m *Manager) serveFormer(ctx context.Context, t *lists.Turn, l *List) bool {
	former := m.former()
	if err := t.Serve(ctx, former.service()); err != nil {
		m.recordOutcome(lists.Failed, m.back.why+"; the former list cannot be put into service: "+err.Error(), l.Hash, nil)
		return false
	}
	text := "; the local list is back"
	if former != nil {
		text = "; the list " + former.Hash + " is back"
	}
	m.inService.Store(former)
	m.recordOutcome(m.back.answer, m.back.why+text, l.Hash, m.back.refused)
	m.back, m.trial = nil, trial{}
	m.setKept()
	return true
}
