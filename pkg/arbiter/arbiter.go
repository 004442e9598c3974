// Package arbiter decides which of two collectors speaks for the GPUs that both
// can read, so that a GPU is never reported twice and never without need left out.
//
// The primary (DCGM) speaks while its values move. When they stand still, or it
// goes away, the secondary (NVML) is woken and takes over as soon as it has rows;
// the primary gets the GPUs back when its values have moved for a while. Each
// change is one new View: no page shows a GPU twice or loses one in between.
// While the primary speaks for all GPUs the secondary sleeps and holds nothing.
//
// Sources are handed over whole. That fits the primary: DCGM reads all GPUs from
// one thread, so one that hangs freezes the values of all of them.
package arbiter

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"warpgauge/pkg/view"
)

// Options of New. Publish is needed; the zero value of the rest is usable.
type Options struct {
	Primary, Secondary string // names of the collectors, for logs and metrics

	// Publish is told of each View, in their order; see view.Part.
	Publish func(*view.View)
	// Standby puts the secondary to sleep, so that it lets go of library and
	// driver, or wakes it. It may block; one call at a time. Nil means that the
	// secondary never sleeps.
	Standby func(ctx context.Context, sleep bool) error

	// Patience is how old the newest value of the primary's GPUs may be; 0 means 5 s.
	Patience time.Duration
	// Confidence is how long the primary's values must have moved without a gap
	// before it gets the GPUs back; 0 means 10 s. At start it gets them at once.
	Confidence time.Duration
	// Interval is how often both sample. The primary reads what an engine has read
	// before, so that its values may be that much older than its rows; 0 means that
	// they are not.
	Interval time.Duration
	// Period is how often the rings are looked at; 0 means 250 ms.
	Period time.Duration

	Logger     *zap.Logger           // nil logs nothing
	Registerer prometheus.Registerer // for own metrics; nil means none
}

func (o Options) withDefaults() Options {
	o.Patience = cmp.Or(o.Patience, 5*time.Second)
	o.Confidence = cmp.Or(o.Confidence, 10*time.Second)
	o.Period = cmp.Or(o.Period, 250*time.Millisecond)
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return o
}

// Arbiter stands between two publishers and the place they share on a board.
type Arbiter struct {
	o       Options
	log     *zap.Logger
	metrics *metrics
	sleeper sleeper

	mu        sync.Mutex
	primary   *view.View
	secondary *view.View
	held      *view.View // GPUs that the primary has just withdrawn, until the secondary has them; nil if none
	verdict   verdict
	gaze      gaze
	bridge    *bridge        // from the last speaker to this one; nil if none is needed
	published []*view.Source // what was published last
	told      bool           // something was
}

// New returns an Arbiter with the secondary awake and nothing to publish.
func New(o Options) *Arbiter {
	o = o.withDefaults()
	a := &Arbiter{
		o: o, log: o.Logger.Named("arbiter"), metrics: newMetrics(o),
		primary: &view.View{}, secondary: &view.View{},
		sleeper: sleeper{standby: o.Standby, changed: make(chan struct{}, 1)},
	}
	a.sleeper.log = a.log
	return a
}

// Primary takes a View of the primary. It never blocks for long. Where v no
// longer has the GPUs, those of the View before stay until the secondary has
// them, or for as long as patience takes.
func (a *Arbiter) Primary(v *view.View) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if before := gpusOf(a.primary); len(before.Sources) > 0 && len(gpusOf(v).Sources) == 0 {
		a.held = before
	}
	a.primary = v
	a.decide(time.Now())
}

// Release lets go of rows that the primary has withdrawn: somebody has asked for
// its release, and no value of it may stay.
func (a *Arbiter) Release() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held, a.bridge = nil, nil
	a.publish()
}

// Settle decides now, and for good: who prints one page only has nothing to wait
// for.
func (a *Arbiter) Settle() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.decide(time.Now())
	a.bridge = nil
	a.publish()
}

// Secondary takes a View of the secondary. It never blocks for long.
func (a *Arbiter) Secondary(v *view.View) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.secondary = v
	a.decide(time.Now())
}

// Run looks at the rings until ctx ends.
func (a *Arbiter) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { a.sleeper.run(ctx) })
	defer wg.Wait()
	tick := time.NewTicker(a.o.Period)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			a.mu.Lock()
			a.decide(now)
			a.mu.Unlock()
		}
	}
}

// Speaker is the name of the collector that speaks for the GPUs; "" if none has
// values yet.
func (a *Arbiter) Speaker() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.name(a.verdict.speaker)
}

func (a *Arbiter) name(s speaker) string {
	return [...]string{"", a.o.Primary, a.o.Secondary}[s]
}

// decide looks, judges, publishes what changed, and says who may sleep.
func (a *Arbiter) decide(now time.Time) {
	seen := sight{
		primary:   a.gaze.newest(a.primary, now, a.o.Patience),
		secondary: a.gaze.newest(a.secondary, now, a.o.Patience),
	}
	before := a.verdict.speaker
	a.verdict.judge(seen, now, a.o)
	if s := a.verdict.speaker; s != before {
		a.tell(before, s, seen, now)
		if before != nobody {
			a.bridge = newBridge(a.published, a.composed(), now, a.o.Patience+a.lag())
		}
	}
	if a.held != nil && (a.verdict.speaker == secondary || len(gpusOf(a.primary).Sources) > 0 ||
		!a.verdict.fresh(a.gaze.newest(a.held, now, a.o.Patience), now, a.o)) {
		a.held = nil
	}
	if a.bridge != nil && a.bridge.passed(a.composed(), a.lag(), now, &a.gaze) {
		a.bridge = nil
	}
	a.publish()
	a.sleeper.want(a.verdict.rested(seen, now, a.o) && !a.lacking())
}

func (a *Arbiter) tell(before, now speaker, seen sight, at time.Time) {
	a.metrics.speaks(a.name(before), a.name(now))
	switch {
	case now == secondary && before == primary && seen.primary.IsZero():
		a.log.Warn("collector is gone, another takes its GPUs over",
			zap.String("collector", a.o.Primary), zap.String("by", a.o.Secondary))
	case now == secondary && before == primary:
		a.log.Warn("values of the GPUs stand still, another collector takes them over",
			zap.String("collector", a.o.Primary), zap.Duration("age", at.Sub(seen.primary)), zap.String("by", a.o.Secondary))
	default:
		a.log.Info("collector speaks for the GPUs", zap.String("collector", a.name(now)))
	}
}

// lag is how much older than its rows the speaker's values may be.
func (a *Arbiter) lag() time.Duration {
	if a.verdict.speaker != primary || a.o.Interval == 0 {
		return 0
	}
	return a.o.Interval + max(slack, min(a.o.Interval/2, time.Second))
}

// slack is what an engine and a sampler may be late by on a busy node.
const slack = 250 * time.Millisecond

// composed is what the verdict has on the page.
func (a *Arbiter) composed() []*view.Source {
	first := a.primary
	if a.held != nil {
		first = &view.View{Sources: append(slices.Clone(a.held.Sources), first.Sources...)}
	}
	return compose(a.verdict.speaker, first, a.secondary)
}

// publish shows that, or the way there, if it differs from before.
func (a *Arbiter) publish() {
	sources := a.composed()
	if a.bridge != nil {
		sources = a.bridge.over(sources)
	}
	if a.told && slices.Equal(sources, a.published) {
		return
	}
	a.published, a.told = sources, true
	a.o.Publish(&view.View{Sources: sources})
}

// lacking reports whether the secondary has devices that the primary does not
// know. It must stay awake for them.
func (a *Arbiter) lacking() bool {
	for _, s := range a.secondary.Sources {
		if !covered(s, devicesOf(a.primary)) {
			return true
		}
	}
	return false
}
