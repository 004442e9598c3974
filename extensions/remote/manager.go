package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/field"
	"warpgauge/pkg/view"
)

// Options of New. All but Report and Directory are needed.
type Options struct {
	Report    bool   // lists are checked and compared, not applied
	Directory string // where the last good list is kept; "": it is not
	Origin    string // of the server in use: lists that others have delivered are not used
	Guard     Guard
	View      func() *view.View
	Measure   func() Measured
	Parse     Parse
	// Apply puts a list into service, nil: the local one. After an error the list before is in
	// service. The list in service can come again with another revision.
	Apply func(context.Context, *List) error
	// Local is the list that serves without a server's.
	Local  func() (hash string, fields field.List)
	Event  func(text string, bad bool) // a list is refused, or no longer
	Logger *zap.Logger
}

// Manager decides on the lists of a server. Deliver, State, Answered and Unreachable can be
// called by any goroutine.
type Manager struct {
	o    Options
	log  *zap.Logger
	wall func() time.Time
	save func(*kept) error
	turn chan struct{} // holds a token while a list changes
	wake chan struct{} // the next time that Run waits for has changed

	// Of the holder of the turn.
	kept    kept
	end     end               // of the list in service
	trial   trial             // of the list in service
	back    *returning        // the list in service has to go; nil: it stays
	changes []time.Time       // the last ones
	costly  map[string]string // by hash: why a list was refused by what it did in service
	failure failure

	inService atomic.Pointer[List] // nil: the local list
	state     atomic.Pointer[State]
}

// How long a change may take, and how often one may come.
const (
	applyTimeout = time.Minute
	mostChanges  = 10
	changesIn    = 10 * time.Minute
	firstRetry   = time.Minute // of a list that could not be put into service
	lastRetry    = time.Hour
)

// New returns a Manager. Nothing is in service before Start.
func New(o Options) *Manager {
	m := &Manager{
		o: o, log: o.Logger.Named("remote").With(zap.String("origin", o.Origin)), wall: time.Now, save: directory(o.Directory).write, turn: make(chan struct{}, 1), wake: make(chan struct{}, 1), costly: map[string]string{},
	}
	m.state.Store(&State{Status: StateWaiting, Text: "no list was delivered yet", Since: time.Now()})
	return m
}

// Start returns the list that was kept, for a start without the server; nil if there is none
// to use. It is called once, before everything else.
func (m *Manager) Start() *List {
	if m.o.Report {
		return nil
	}
	k, err := directory(m.o.Directory).read()
	if err != nil {
		m.log.Warn("no list is kept from before", zap.Error(err))
		m.update(func(s *State) { s.Unkept = err.Error() })
		return nil
	}
	m.kept = k
	l := m.former()
	if m.inService.Store(l); l != nil {
		m.say(StateApplied, "the list that was kept is in service", l.Hash, nil)
	}
	return l
}

// former returns which of the kept lists is to be in service, and sets its end; nil: the
// local one.
func (m *Manager) former() *List {
	m.end = end{}
	for _, l := range []*List{m.kept.Passing, m.kept.Lasting} {
		if l == nil {
			continue
		}
		err := m.revive(l)
		if err == nil {
			return l
		}
		m.log.Warn("the kept list is not used", zap.String("hash", l.Hash), zap.Error(err))
	}
	return nil
}

// revive prepares a kept list for service: limits may be others now, and its time over.
func (m *Manager) revive(l *List) error {
	if l.Origin != m.o.Origin {
		return fmt.Errorf("it came from %s, not from %s", l.Origin, m.o.Origin)
	}
	if l.Hash != hashOf(l.Content) {
		return errSum
	}
	e, err := m.left(span{l.Hash, l.Applied, l.Until, l.For})
	if err != nil {
		return err
	}
	fields, refused, err := m.o.Guard.Examine(&l.Offer, m.o.Parse, m.o.View())
	for _, r := range refused {
		err = errors.Join(err, errors.New(r.String()))
	}
	if err != nil {
		return err
	}
	l.Fields, m.end = fields, e
	return nil
}

// backward is how far a wall clock may be set back before a list's end can no longer be told.
const backward = time.Minute

// left returns when a list that was applied before ends.
func (m *Manager) left(s span) (end, error) {
	wall := m.wall()
	switch {
	case s.Until.IsZero():
		return end{}, nil
	case !wall.Before(s.Until):
		return end{}, fmt.Errorf("its time was over at %s: %w", s.Until.Format(time.RFC3339), errEnded)
	case wall.Before(s.Applied.Add(-backward)):
		return end{}, fmt.Errorf("the clock was set back to before the list was applied, so its time counts as over: %w", errEnded)
	}
	e := end{elapsed: time.Now().Add(min(s.Until.Sub(wall), s.Until.Sub(s.Applied)))}
	if !s.For {
		e.wall = s.Until
	}
	return e, nil
}

// errEnded says what to do about a list whose time is over.
var errEnded = errors.New("deliver another list, or this one with another comment")

// String is the refusal as messages have it.
func (r Refusal) String() string {
	if r.Line > 0 {
		return fmt.Sprintf("line %d: %s", r.Line, r.Text)
	}
	return r.Text
}

// Deliver implements the type Deliver.
func (m *Manager) Deliver(ctx context.Context, o *Offer) *Outcome {
	tried := hashOf(o.Content)
	select {
	case m.turn <- struct{}{}:
	case <-ctx.Done():
		return &Outcome{Status: Failed, Tried: tried, Running: m.running(), Err: ctx.Err()}
	}
	defer func() { <-m.turn }()
	out := m.decide(ctx, o, tried)
	out.Tried, out.Running = tried, m.running()
	if l := m.inService.Load(); l != nil && out.Status != Reported {
		out.Until = l.Until
	}
	return out
}

// running is the hash of the list in service.
func (m *Manager) running() string {
	if l := m.inService.Load(); l != nil {
		return l.Hash
	}
	hash, _ := m.o.Local()
	return hash
}

// decide is Deliver for the holder of the turn.
func (m *Manager) decide(ctx context.Context, o *Offer, tried string) *Outcome {
	m.update(func(s *State) { s.Down = "" })
	if l := m.inService.Load(); l != nil && l.Hash == tried {
		m.revise(ctx, l, o.Revision)
		m.say(StateApplied, "", tried, nil)
		return &Outcome{Status: Unchanged}
	}
	failed := func(state string, err error, refused []Refusal) *Outcome {
		text := bounded(err.Error())
		m.say(state, text, tried, refused)
		return &Outcome{Status: Failed, Err: errors.New(text), Refused: refused}
	}
	if why := m.costly[tried]; why != "" {
		return failed(StateRefused, errors.New(why), []Refusal{{0, why}})
	}
	next := &List{Offer: *o, Hash: tried, Applied: m.wall().UTC().Round(0)}
	next.Origin = m.o.Origin // what a source calls it can be more
	ends, err := m.timed(next)
	if err != nil {
		return failed(StateEnded, err, nil)
	}
	list, refused, err := m.o.Guard.Examine(o, m.o.Parse, m.o.View())
	own := false
	if err != nil {
		// The node's own list can have what the guard takes from no server. One that ends a
		// trial returns to it so.
		hash, local := m.o.Local()
		if own = tried == hash || tried == hashOf(field.Format(local)); !own {
			return failed(StateRefused, err, refused)
		}
	}
	next.Fields = list
	if m.o.Report {
		text := m.difference(list)
		m.say(StateReported, text, tried, nil)
		return &Outcome{Status: Reported}
	}
	if err := m.tooOften(tried); err != nil {
		return failed(StateFailed, err, nil)
	}
	if own {
		if err := m.withdraw(ctx); err != nil {
			return failed(StateFailed, err, nil)
		}
		m.say(StateApplied, "the server offers the local list, which serves", tried, nil)
		return &Outcome{Status: Applied}
	}
	if err := m.apply(ctx, next, ends); err != nil {
		if errors.Is(err, errRefused) {
			m.refuseAgain(tried, err.Error())
			return failed(StateRefused, err, []Refusal{{0, err.Error()}})
		}
		m.failure = failure{tried, min(max(firstRetry, 2*m.failure.pause), lastRetry), time.Now(), err}
		return failed(StateFailed, err, nil)
	}
	m.failure = failure{}
	m.say(StateApplied, "", tried, nil)
	return &Outcome{Status: Applied}
}

// revise notes that the server calls the list in service something else now.
func (m *Manager) revise(ctx context.Context, l *List, revision string) {
	next := *l
	if next.Revision = revision; l.Revision == revision || m.o.Apply(ctx, &next) != nil {
		return
	}
	m.inService.Store(&next)
	for _, k := range []**List{&m.kept.Passing, &m.kept.Lasting} {
		if *k == l {
			*k = &next
		}
	}
}

// timed sets when a list ends. One that was delivered before keeps its end.
func (m *Manager) timed(l *List) (end, error) {
	if s, known := m.kept.span(l.Hash); known {
		l.Applied, l.Until, l.For = s.Applied, s.Until, s.For
		return m.left(s)
	}
	v, _ := readValidity(l.Content) // what is wrong in it is refused
	e, until := v.ends(time.Now(), m.wall())
	l.Until, l.For = until, v.length > 0
	if e.over(time.Now(), m.wall()) {
		return e, fmt.Errorf("its time was over at %s: %w", until.Format(time.RFC3339), errEnded)
	}
	return e, nil
}

// failure is a list that could not be put into service.
type failure struct {
	list  string // hash; "": there is none
	pause time.Duration
	at    time.Time
	err   error
}

// tooOften bounds what a server that cannot decide costs, and a list that no session can be
// opened with: each change begins a session of every collector.
func (m *Manager) tooOften(list string) error {
	now := time.Now()
	if f := &m.failure; f.list != list {
		m.failure = failure{}
	} else if left := f.pause - now.Sub(f.at); left > 0 {
		return fmt.Errorf("%w; it is tried again after %v", f.err, f.pause)
	}
	m.changes = slices.DeleteFunc(m.changes, func(t time.Time) bool { return now.Sub(t) >= changesIn })
	if len(m.changes) < mostChanges {
		m.changes = append(m.changes, now)
		return nil
	}
	return fmt.Errorf("the server has changed the list %d times in %v; the next change waits", mostChanges, changesIn)
}

// refuseAgain notes that a list was refused by what it did in service: it is not tried again.
func (m *Manager) refuseAgain(list, why string) {
	if len(m.costly) >= maxTimed {
		clear(m.costly)
	}
	m.costly[list] = why
}

// apply puts a list into service and keeps it.
func (m *Manager) apply(ctx context.Context, l *List, e end) error {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	before := m.inService.Load()
	if err := m.o.Apply(ctx, l); err != nil {
		return err
	}
	measured := m.o.Measure()
	if n := measured.Series; n > m.o.Guard.Series {
		back, cancel := context.WithTimeout(context.WithoutCancel(ctx), applyTimeout)
		defer cancel()
		err := m.o.Apply(back, before)
		return errors.Join(fmt.Errorf("%w: in service it made %d series, which is more than %d (--remote-limit series); the former list is back", errRefused, n, m.o.Guard.Series), err)
	}
	m.end = e
	m.back = nil
	m.trial = trial{list: l.Hash, began: time.Now(), last: measured, passing: m.kept.Passing, lasting: m.kept.Lasting}
	m.inService.Store(l)
	m.kept.Passing = nil
	if l.Until.IsZero() {
		m.kept.Lasting = l
	} else {
		m.kept.Passing = l
		m.kept.note(l)
	}
	m.keep()
	poke(m.wake)
	return nil
}

// withdraw puts the local list into service and keeps none of the server's.
func (m *Manager) withdraw(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	if m.inService.Load() != nil {
		if err := m.o.Apply(ctx, nil); err != nil {
			return err
		}
	}
	m.end, m.back, m.trial = end{}, nil, trial{}
	m.inService.Store(nil)
	m.kept.Passing, m.kept.Lasting = nil, nil
	m.keep()
	return nil
}

// keep writes what outlives the process. A disk that is full leaves the list in service.
func (m *Manager) keep() {
	err := m.save(&m.kept)
	m.update(func(s *State) {
		if s.Unkept = ""; err != nil {
			s.Unkept = err.Error()
			m.log.Error("the list is in service but not kept: a start without the server has an older one", zap.Error(err))
		}
	})
}

// poke fills a channel that holds one value.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// difference says what a list would change.
func (m *Manager) difference(list field.List) string {
	_, now := m.o.Local()
	if l := m.inService.Load(); l != nil {
		now = l.Fields
	}
	lines := func(l field.List) map[string]string {
		out := map[string]string{}
		for i := range l.Fields {
			f := &l.Fields[i]
			out[f.Name] += fmt.Sprint(f.Type, f.Interval, f.Buckets, f.Help)
		}
		return out
	}
	was, is := lines(now), lines(list)
	var adds, removes, changes []string
	for name, line := range is {
		if before, had := was[name]; !had {
			adds = append(adds, name)
		} else if before != line {
			changes = append(changes, name)
		}
	}
	for name := range was {
		if _, has := is[name]; !has {
			removes = append(removes, name)
		}
	}
	series, _ := newNode(m.o.View()).all(list)
	return fmt.Sprintf("it would be applied: adds %s; removes %s; changes %s; up to %d series", some(adds), some(removes), some(changes), series)
}

// some names the first few.
func some(names []string) string {
	const most = 10
	slices.Sort(names)
	switch {
	case len(names) == 0:
		return "nothing"
	case len(names) > most:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], " "), len(names)-most)
	}
	return strings.Join(names, " ")
}

// trial is the time after a change in which its cost is measured.
type trial struct {
	list             string // hash; "": there is none
	began            time.Time
	last             Measured
	passing, lasting *List // what was kept before
}

// returning says that the list in service has to go, and why.
type returning struct {
	state, why string
}

// trialStep is long enough for slow fields at their usual interval.
const (
	trialStep  = 30 * time.Second
	wallPoll   = 5 * time.Second // how soon a step of the wall clock is seen
	retryAfter = 10 * time.Second
)

// Run ends lists whose time is over and those that cost too much, until ctx ends.
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
		select {
		case m.turn <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		next := m.check(ctx)
		<-m.turn
		timer.Stop()
		if next > 0 {
			timer.Reset(next)
		}
	}
}

// check does what is due and returns when to check again; 0: when a list was applied.
func (m *Manager) check(ctx context.Context) (next time.Duration) {
	l := m.inService.Load()
	if l == nil {
		return 0
	}
	now := time.Now()
	if m.back == nil && m.end.over(now, m.wall()) {
		m.back = &returning{StateEnded, "the time of the list was over at " + l.Until.Format(time.RFC3339)}
		m.kept.Passing = nil
	}
	if m.back == nil && m.trial.list == l.Hash {
		if due := trialStep - now.Sub(m.trial.began); due > 0 {
			next = due
		} else if why := m.overBudget(now); why != "" {
			m.refuseAgain(l.Hash, why)
			m.back = &returning{StateRefused, why}
			m.kept.Passing, m.kept.Lasting = m.trial.passing, m.trial.lasting
		}
	}
	if m.back != nil {
		if !m.restore(ctx, l) {
			return retryAfter
		}
		return m.check(ctx)
	}
	if !m.end.elapsed.IsZero() {
		wait := max(m.end.elapsed.Sub(now), time.Millisecond)
		if !m.end.wall.IsZero() {
			wait = min(wait, wallPoll)
		}
		if next == 0 || wait < next {
			next = wait
		}
	}
	return next
}

// overBudget measures the cost of the list in service and ends the trial if it is good.
func (m *Manager) overBudget(now time.Time) string {
	t := &m.trial
	measured := m.o.Measure()
	cost, most := measured.cost(&t.last, now.Sub(t.began))
	t.list = ""
	if cost <= m.o.Guard.Cost {
		return ""
	}
	text := fmt.Sprintf("in service the list took %.3f seconds in vendors' libraries per second, which is more than %v (--remote-limit cost)", cost, m.o.Guard.Cost)
	if most != "" {
		text += "; most in " + most
	}
	return text
}

// restore puts the former list, or the local one, into service in place of l. It reports
// whether that was possible.
func (m *Manager) restore(ctx context.Context, l *List) bool {
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	former := m.former()
	if err := m.o.Apply(ctx, former); err != nil {
		m.say(StateFailed, m.back.why+"; the former list cannot be put into service: "+err.Error(), l.Hash, nil)
		return false
	}
	text := "; the local list is back"
	if former != nil {
		text = "; the list " + former.Hash + " is back"
	}
	var refused []Refusal
	if m.back.state == StateRefused {
		refused = []Refusal{{0, m.back.why}}
	}
	m.inService.Store(former)
	m.say(m.back.state, m.back.why+text, l.Hash, refused)
	m.back, m.trial = nil, trial{}
	m.keep()
	return true
}
