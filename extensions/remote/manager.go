package remote

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"warpgauge/extensions/remote/transport"
	"warpgauge/pkg/field"
	"warpgauge/pkg/file"
	"warpgauge/pkg/lists"
	"warpgauge/pkg/view"
)

// Manager decides on a server's lists and proposes the accepted ones to the Desk. Deliver, Answered, Unreachable and Refused
// are safe for concurrent use.
type Manager struct {
	o      Options
	origin string // the server's; lists from other origins are not used
	guard  Guard
	log    *zap.Logger
	dir    file.Private // of the saved lists

	// Guarded by the Desk's Turn.
	kept    kept
	last    []byte         // last parsed content
	trial   *trial         // of the list in service; nil: it has ended
	back    *lists.Outcome // why the list in service must go; nil: it stays
	retry   time.Time      // not to replace that list before
	changes *rate.Limiter
	costly  map[string]string // by hash: why a list was withdrawn
	failure failure
	large   field.List // the largest that was replaced within lossesIn
	largeAt time.Time  // when it was last in service

	saving  sync.Mutex           // held while the state is written
	unsaved atomic.Pointer[kept] // nil: everything is written

	inService atomic.Pointer[List] // nil: the local list
	mu        sync.Mutex           // held while the Desk's Delivery is changed
}

// Time limit and rate limit of changes.
const (
	applyTimeout = time.Minute
	maxChanges   = 10
	changesIn    = 10 * time.Minute
	lossesIn     = time.Hour
	firstRetry   = time.Minute // after a list could not be applied
	lastRetry    = time.Hour
)

// newManager returns a Manager. It serves no list before restore or Deliver.
func newManager(o Options) *Manager {
	origin := transport.Origin(o.Settings.URL)
	o.Desk.SetDelivery(lists.Delivery{Mode: o.Settings.Mode, Origin: origin, Status: lists.Waiting, Text: "no list was delivered yet", Since: time.Now()})
	return &Manager{
		o: o, origin: origin, guard: Guard{o.Settings.Limits, o.Settings.Allow}, log: o.Logger.Named("remote").With(zap.String("origin", origin)),
		dir:     file.Private{Path: o.Settings.Directory, Of: "lists", Flag: "remote-directory"},
		changes: rate.NewLimiter(rate.Every(changesIn/maxChanges), maxChanges), costly: map[string]string{},
	}
}

// reports tells whether lists are only checked and compared.
func (m *Manager) reports() bool { return m.o.Settings.Mode == ModeReport }

// restore serves the saved list, for a start without the server. New calls it once, before the engine runs.
func (m *Manager) restore() {
	if m.reports() {
		return
	}
	k, err := loadKept(m.dir)
	if err != nil {
		m.log.Warn("cannot read the saved field list", zap.Error(err))
		m.update(func(s *lists.Delivery) { s.Unkept = err.Error() })
		return
	}
	m.kept = k
	l := m.former()
	if m.inService.Store(l); l != nil {
		m.o.Desk.Restore(l.service())
		m.recordOutcome(lists.Applied, "the list that was kept is in service", l.Hash)
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

// parse parses a list and logs its warnings, except for the same list twice in a row: the server sends a refused list
// with every answer.
func (m *Manager) parse(o *lists.Offer) *lists.Parsed {
	p := m.guard.Parse(o, m.o.Desk)
	known := func(name string) bool { _, _, ok := field.ByName(name); return ok || name == o.Origin }
	for i := range p.Problems {
		text := &p.Problems[i].Message
		if *text = transport.Hide(*text, known); o.YAML { // its messages do not quote all
			*text = unusable
		}
	}
	if p.Err != nil && !errors.Is(p.Err, errRefused) {
		if p.Err = errors.New(transport.Hide(p.Err.Error(), known)); o.YAML {
			p.Err = errors.New(unusable)
		}
	}
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

const unusable = "it cannot be used as it is: warpgauge check --guard says why"

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
	out.Tried, out.Running = tried, m.o.Desk.Status().InService.Hash
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

// decide implements Deliver. The caller holds the Turn.
func (m *Manager) decide(ctx context.Context, t *lists.Turn, o *lists.Offer, tried string) *lists.Outcome {
	m.Answered()
	if l := m.inService.Load(); l != nil && l.Hash == tried {
		m.revise(ctx, t, l, o.Revision)
		m.recordOutcome(lists.Applied, "", tried)
		return &lists.Outcome{Answer: lists.Unchanged}
	}
	if len(o.Content) == 0 {
		if m.reports() {
			return m.recordOutcome(lists.Reported, "the server has no list for this node", tried)
		}
		if err := m.withdraw(ctx, t); err != nil {
			return m.recordOutcome(lists.Failed, err.Error(), tried)
		}
		return m.recordOutcome(lists.Applied, "the server has no list for this node; the local list serves", tried)
	}
	if why := m.costly[tried]; why != "" {
		return m.recordOutcome(lists.Refused, why, tried, lists.Refusal{Text: why})
	}
	next := &List{Offer: *o, Hash: tried}
	next.Origin = m.origin                  // the source's name for it can be longer
	next.Until, _ = readValidity(o.Content) // Guard.Parse reports the invalid lines
	if err := next.ended(); err != nil {
		return m.recordOutcome(lists.Ended, err.Error(), tried)
	}
	p := m.parse(o)
	refused, err := m.guard.Examine(p, m.o.Engine.Board().Load())
	if err != nil {
		return m.recordOutcome(lists.Refused, err.Error(), tried, refused...)
	}
	next.Fields = p.Fields
	if l := m.inService.Load(); l != nil {
		next.Former = l.Hash
	}
	if why := m.loses(next); why != "" {
		return m.recordOutcome(lists.Refused, why, tried, lists.Refusal{Text: why})
	}
	if m.reports() {
		return m.recordOutcome(lists.Reported, m.difference(p.Fields), tried)
	}
	if err := m.tooOften(tried); err != nil {
		return m.recordOutcome(lists.Failed, err.Error(), tried)
	}
	if err := m.apply(ctx, t, next); err != nil {
		if errors.Is(err, errRefused) {
			m.refuseAgain(tried, err.Error())
			return m.recordOutcome(lists.Refused, err.Error(), tried, lists.Refusal{Text: err.Error()})
		}
		m.failure = failure{tried, min(max(firstRetry, 2*m.failure.pause), lastRetry), time.Now(), err}
		return m.recordOutcome(lists.Failed, err.Error(), tried)
	}
	m.failure = failure{}
	return m.recordOutcome(lists.Applied, "", tried)
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

// tooOften returns an error after too many changes, or too soon after a list failed: each change restarts every session.
func (m *Manager) tooOften(list string) error {
	if f := &m.failure; f.list != list {
		m.failure = failure{}
	} else if time.Since(f.at) < f.pause {
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
	before, was, back := m.inService.Load(), m.o.Page.Series(), m.kept
	if m.trial != nil { // what it has taken away counts
		was, back = max(was, m.trial.series), m.trial.kept
	}
	if m.returns(l) {
		was = 0
	}
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
	m.back, m.retry = nil, time.Time{}
	m.trial = &trial{time.Now(), newCosts(m.o.Engine.Costs()), back, was}
	m.inService.Store(l)
	if m.kept.Passing = l; l.Until.IsZero() {
		m.kept = kept{Lasting: l}
	}
	m.unsaved.Store(new(m.kept))
	return nil
}

// withdraw puts the local list into service and forgets the server's lists.
func (m *Manager) withdraw(ctx context.Context, t *lists.Turn) error {
	if m.inService.Load() != nil {
		if err := t.Serve(ctx, nil); err != nil {
			return err
		}
	}
	m.back, m.trial, m.kept = nil, nil, kept{}
	m.inService.Store(nil)
	m.unsaved.Store(new(kept))
	return nil
}

// keep writes the state. If the disk is full, the list stays in service.
func (m *Manager) keep() {
	m.saving.Lock()
	defer m.saving.Unlock()
	k := m.unsaved.Swap(nil)
	if k == nil {
		return // another goroutine wrote it
	}
	err := k.write(m.dir)
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
	text := func(f *field.Field) string { return fmt.Sprint(f.Type, f.Interval, f.Buckets, f.Help) }
	var changed []string
	for i := range list.Fields {
		f := &list.Fields[i]
		if slices.ContainsFunc(now.Fields, func(was field.Field) bool { return was.Name == f.Name && text(&was) != text(f) }) {
			changed = append(changed, f.Name)
		}
	}
	series, _ := newInventory(m.o.Engine.Board().Load()).all(list)
	return fmt.Sprintf("it would be applied: adds %s; removes %s; changes %s; up to %d series",
		some(missing(now, list)), some(missing(list, now)), some(changed), series)
}

// missing returns the names of the wanted fields that a list does not have.
func missing(list, wanted field.List) (names []string) {
	for i := range wanted.Fields {
		name := wanted.Fields[i].Name
		if !slices.ContainsFunc(list.Fields, func(f field.Field) bool { return f.Name == name }) {
			names = append(names, name)
		}
	}
	return names
}

// some returns the first few of the names as text.
func some(names []string) string {
	const most = 10
	slices.Sort(names)
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], " "), len(names)-most)
	}
	return cmp.Or(strings.Join(names, " "), "nothing")
}

// returns reports whether a list is the server's one before the list in service.
func (m *Manager) returns(l *List) bool {
	now := m.inService.Load()
	return now != nil && now.Former == l.Hash
}

// loses returns why a list takes away too many fields of the list in service, or of a larger one within the hour before, or "".
func (m *Manager) loses(next *List) string {
	now := m.o.Desk.Status().InService.Fields
	if len(now.Fields) >= len(m.large.Fields) || time.Since(m.largeAt) > lossesIn {
		m.large, m.largeAt = now, time.Now()
	}
	if m.returns(next) {
		return ""
	}
	return m.guard.loses(len(missing(next.Fields, m.large)), len(m.large.Fields), "fields")
}

// trial measures the cost of a new list.
type trial struct {
	began  time.Time
	last   costs
	kept   kept // before the list
	series int  // on the page before the list
}

// Times of Run. trialTime lets slow fields be read at their usual interval.
const (
	checkEvery = time.Second
	trialTime  = 30 * time.Second
	retryAfter = 10 * time.Second // the former list could not be put into service
)

// Run ends expired lists and lists that cost or lose too much, until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	return view.Every(ctx, checkEvery, func(time.Time) { _ = m.inTurn(ctx, m.check) }) // inTurn fails only if ctx has ended
}

// check ends the list in service if it has expired, or costs or loses too much.
func (m *Manager) check(ctx context.Context, t *lists.Turn) {
	l, now := m.inService.Load(), time.Now()
	if l == nil {
		return
	}
	if m.back == nil && l.ended() != nil {
		m.back = &lists.Outcome{Answer: lists.Ended, Err: errors.New("the time of the list was over at " + l.Until.Format(time.RFC3339))}
		m.kept.Passing = nil
	}
	if m.back == nil && m.trial != nil && now.Sub(m.trial.began) >= trialTime {
		if why := m.overBudget(now); why != "" {
			m.refuseAgain(l.Hash, why)
			m.back = &lists.Outcome{Answer: lists.Refused, Err: errors.New(why), Refused: []lists.Refusal{{Text: why}}}
			m.kept = m.trial.kept
		}
		m.trial = nil
	}
	if m.back != nil && !now.Before(m.retry) {
		m.serveFormer(ctx, t, l)
	}
}

// overBudget returns why the list in service costs or loses too much, or "".
func (m *Manager) overBudget(now time.Time) string {
	cost := newCosts(m.o.Engine.Costs()).since(m.trial.last).Seconds() / now.Sub(m.trial.began).Seconds()
	if cost <= m.guard.Cost {
		return m.guard.loses(m.trial.series-m.o.Page.Series(), m.trial.series, "series")
	}
	return fmt.Sprintf("in service the list took %.3f seconds in vendors' libraries per second, which is more than %v (--remote-limit cost)", cost, m.guard.Cost)
}

// serveFormer replaces l with the previous list, or with the local one. After a failure, check tries again.
func (m *Manager) serveFormer(ctx context.Context, t *lists.Turn, l *List) {
	former, why := m.former(), m.back.Err.Error()
	if err := t.Serve(ctx, former.service()); err != nil {
		m.recordOutcome(lists.Failed, why+"; the former list cannot be put into service: "+err.Error(), l.Hash)
		m.retry = time.Now().Add(retryAfter)
		return
	}
	text := "; the local list is back"
	if former != nil {
		text = "; the list " + former.Hash + " is back"
	}
	m.inService.Store(former)
	m.recordOutcome(m.back.Answer, why+text, l.Hash, m.back.Refused...)
	m.back, m.trial = nil, nil
	m.unsaved.Store(new(m.kept))
}
