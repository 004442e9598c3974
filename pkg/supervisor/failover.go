package supervisor

import (
	"cmp"
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/view"
)

// failoverPeriod is how often the rings are read.
const failoverPeriod = 250 * time.Millisecond

// FailoverOptions are those of NewFailover. Primary, Secondary and Publish are
// needed; the zero value of the rest is usable.
type FailoverOptions struct {
	Primary, Secondary string // names of the collectors, for logs and metrics

	// Publish gets the sources to show, in their order; it must not block.
	Publish func([]*view.Source)
	// Standby ends the secondary's session, so that it holds neither library nor
	// driver, or starts one. It may block; one call at a time. Nil means that the
	// secondary is never on standby.
	Standby func(ctx context.Context, rest bool) error

	// Patience is for how long the primary's GPUs may be without new values; 0 means 5 s.
	Patience time.Duration
	// Confidence is for how long they must have had new values before the primary serves
	// the GPUs again; 0 means 10 s. At start it serves them at once.
	Confidence time.Duration

	// Changed gets the name of the collector that has taken the GPUs over; it must not block.
	Changed func(collector string)

	Logger *zap.Logger // nil logs nothing
}

func (o FailoverOptions) withDefaults() FailoverOptions {
	o.Patience = cmp.Or(o.Patience, 5*time.Second)
	o.Confidence = cmp.Or(o.Confidence, 10*time.Second)
	if o.Changed == nil {
		o.Changed = func(string) {}
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return o
}

// Failover decides which of two collectors serves the GPUs that both can read, so
// that no GPU is reported twice and none is left out without need. It judges by the
// rings alone: rows that advance are the only sign that counts.
//
// The primary (DCGM) serves while its values advance. When they have not for
// Patience, the secondary (NVML) takes over with each of its sources that has rows;
// the others follow as they become ready. The primary serves again when its values
// have advanced, without long gaps, for Confidence and its view is complete. While
// the primary serves, the secondary is on standby, unless it has GPUs that the
// primary does not know.
type Failover struct {
	o       FailoverOptions
	log     *zap.Logger
	active  *prometheus.GaugeVec
	changes *prometheus.CounterVec
	wake    chan struct{}

	mu        sync.Mutex
	primary   []*view.Source
	secondary []*view.Source
	kept      []*view.Source // of the primary, which has withdrawn them: shown until the secondary has rows
	serving   serving
	behind    time.Duration // for how long, by share of time, the primary's values have not advanced
	advancing time.Duration // for how long they have, since it was last behind
	looked    time.Time
	began     time.Time // of serving
	seen      bool      // the primary has had values
	late      bool      // and they do not advance now
	failed    bool      // and was behind since
	published []*view.Source
	started   bool // something was published
	rest      bool // what the secondary was last asked
	row       ring.Row
}

// serving says whose values of the GPUs are shown.
type serving uint8

const (
	undecided serving = iota // neither has values yet: both are shown
	byPrimary
	bySecondary
)

// NewFailover returns a Failover with the secondary active and nothing to publish.
func NewFailover(o FailoverOptions) *Failover {
	o = o.withDefaults()
	f := &Failover{
		o: o, log: o.Logger.Named("failover"), wake: make(chan struct{}, 1),
		active: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "warpgauge_gpu_speaker",
			Help: "1 for the collector whose values of the NVIDIA GPUs are shown, 0 for the other.",
		}, []string{"collector"}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warpgauge_gpu_takeovers_total",
			Help: "Times that this collector took the NVIDIA GPUs over from the other.",
		}, []string{"collector"}),
	}
	for _, name := range []string{o.Primary, o.Secondary} {
		f.active.WithLabelValues(name)
		f.changes.WithLabelValues(name)
	}
	return f
}

// Describe sends the descriptions of the metrics.
func (f *Failover) Describe(ch chan<- *prometheus.Desc) {
	f.active.Describe(ch)
	f.changes.Describe(ch)
}

// Collect sends the metrics.
func (f *Failover) Collect(ch chan<- prometheus.Metric) {
	f.active.Collect(ch)
	f.changes.Collect(ch)
}

// Primary takes the primary's sources. If none of them has a GPU any more, the
// former ones stay until the secondary has rows; --stale-after ends their values if
// it never has.
func (f *Failover) Primary(sources []*view.Source) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(gpusOf(sources)) == 0 && len(gpusOf(f.primary)) > 0 {
		f.kept = gpusOf(f.primary)
	}
	f.primary = sources
	f.decide(time.Now())
}

// Secondary takes the secondary's sources.
func (f *Failover) Secondary(sources []*view.Source) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.secondary = sources
	f.decide(time.Now())
}

// Withdraw drops rows that the primary no longer has: an operator has released it,
// and no value of it may stay.
func (f *Failover) Withdraw() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept = nil
	f.publish(time.Now())
}

// DecideNow decides without waiting for what may still come: for a page that is
// printed once.
func (f *Failover) DecideNow() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.decide(time.Now())
}

// Serving is the name of the collector that serves the GPUs; "" if none has values
// yet.
func (f *Failover) Serving() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.name(f.serving)
}

func (f *Failover) name(s serving) string {
	return [...]string{"", f.o.Primary, f.o.Secondary}[s]
}

// Run decides from time to time until ctx ends.
func (f *Failover) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { f.runStandby(ctx) })
	tick := time.NewTicker(failoverPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			f.mu.Lock()
			f.decide(now)
			f.mu.Unlock()
		}
	}
}

// runStandby does what decide has last wanted of the secondary.
func (f *Failover) runStandby(ctx context.Context) {
	resting := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		}
		f.mu.Lock()
		rest := f.rest
		f.mu.Unlock()
		if f.o.Standby == nil || rest == resting {
			continue
		}
		f.log.Debug("standby of a collector", zap.String("collector", f.o.Secondary), zap.Bool("standby", rest))
		if err := f.o.Standby(ctx, rest); err != nil && ctx.Err() == nil {
			f.log.Warn("standby of a collector", zap.Bool("standby", rest), zap.Error(err))
		}
		resting = rest
	}
}

// decide judges the rings, publishes what changes, and says whether the secondary
// may rest.
func (f *Failover) decide(now time.Time) {
	f.measure(now)
	fresh := f.fresh(f.primary, now)
	next := f.serving
	switch f.serving {
	case undecided:
		if fresh {
			next = byPrimary
		} else if f.fresh(f.secondary, now) {
			next = bySecondary
		}
	case byPrimary:
		if (f.behind >= f.patience(f.primary) || !fresh && len(gpusOf(f.primary)) == 0) && f.fresh(f.secondary, now) {
			next = bySecondary
		}
	case bySecondary:
		ready := !f.failed || f.advancing >= f.o.Confidence || !f.fresh(f.secondary, now)
		rows := uint64(math.MaxUint64) // a cell that the primary still lacks is waited for
		if f.advancing >= 3*f.o.Confidence {
			rows = 0
		}
		if fresh && ready && f.behind == 0 && complete(f.published, f.primary, now, f.o.Patience, rows) {
			next = byPrimary
		}
	}
	if next != f.serving {
		f.change(next, now)
	}
	if f.kept != nil && (f.serving == bySecondary && !f.gathering(now) || len(gpusOf(f.primary)) > 0 || f.forgotten(now)) {
		f.kept = nil
	}
	f.publish(now)
	f.want(f.serving == byPrimary && fresh && f.behind == 0 && now.Sub(f.began) >= f.o.Confidence && !f.lacking())
}

// forgotten reports whether what the primary has withdrawn is so old that no page
// shows it: --stale-after ends the values before.
func (f *Failover) forgotten(now time.Time) bool {
	age, known := f.age(f.kept, now)
	return !known || age > 8*f.patience(f.kept)
}

// measure adds the time since it was last called to that in which the primary's
// values advanced, or to that in which they did not. One new value after a long gap
// does not make up for the gap: time behind is paid back second by second.
func (f *Failover) measure(now time.Time) {
	passed := min(max(now.Sub(f.looked), 0), time.Second)
	if f.looked.IsZero() {
		passed = 0
	}
	f.looked = now
	age, known := f.age(f.primary, now)
	f.seen = f.seen || known
	patience := f.patience(f.primary)
	if late := f.seen && (!known || age > f.tolerance()); late != f.late {
		f.late = late
		f.log.Debug("values of the GPUs advance or not", zap.String("collector", f.o.Primary), zap.Bool("advance", !late), zap.Duration("age", age),
			zap.Duration("tolerance", f.tolerance()), zap.Duration("behind", f.behind), zap.Duration("patience", patience))
	}
	switch {
	case !f.seen: // it has not been opened yet
	case !known:
		f.behind, f.advancing = patience, 0
	case age > f.tolerance():
		f.behind = min(max(f.behind, min(age, patience))+passed, 2*patience)
		f.advancing = 0
	default:
		f.behind = max(f.behind-passed, 0)
		f.advancing += passed
	}
	f.failed = f.failed || f.behind >= patience
}

// patience is how long GPUs may be without new values: longer than that of the
// options if the list has slow fields only.
func (f *Failover) patience(sources []*view.Source) time.Duration {
	return max(f.o.Patience, 2*slowest(sources))
}

// tolerance is the age of values that advance: three intervals of the source, and
// at most half of patience or one and a half intervals.
func (f *Failover) tolerance() time.Duration {
	interval := slowest(f.primary)
	return min(max(3*interval, time.Second), max(f.patience(f.primary)/2, interval*3/2))
}

// slowest is the longest interval of the sources with GPUs.
func slowest(sources []*view.Source) (interval time.Duration) {
	for _, s := range gpusOf(sources) {
		interval = max(interval, s.Interval)
	}
	return interval
}

// age returns the median age of the newest values of the GPUs of sources; false if
// none has one. One GPU that hangs is its own problem, not the collector's.
func (f *Failover) age(sources []*view.Source, now time.Time) (time.Duration, bool) {
	var stamps []int64
	seen := false
	for _, s := range gpusOf(sources) {
		if !latest(s, &f.row) {
			continue
		}
		for i, stamp := range f.row.Stamps {
			if s.Devices[i].Level == field.GPU {
				stamps = append(stamps, stamp)
				seen = seen || stamp != 0 && stamp <= now.Add(f.o.Patience).UnixNano() // otherwise the clock was set back
			}
		}
	}
	if !seen {
		return 0, false
	}
	slices.Sort(stamps)
	return now.Sub(time.Unix(0, stamps[len(stamps)/2])), true
}

// fresh reports whether most GPUs of sources have values of now.
func (f *Failover) fresh(sources []*view.Source, now time.Time) bool {
	age, known := f.age(sources, now)
	return known && age <= f.patience(sources)
}

func (f *Failover) change(next serving, now time.Time) {
	before := f.serving
	f.serving, f.began = next, now
	name := f.name(next)
	f.active.WithLabelValues(name).Set(1)
	if next == byPrimary {
		f.behind = 0
	}
	if before == undecided {
		f.log.Info("collector serves the GPUs", zap.String("collector", name))
		return
	}
	f.active.WithLabelValues(f.name(before)).Set(0)
	f.changes.WithLabelValues(name).Inc()
	f.o.Changed(name)
	if next == byPrimary {
		f.log.Info("collector serves the GPUs again", zap.String("collector", name))
		return
	}
	f.log.Warn("values of the GPUs do not advance, another collector takes over",
		zap.String("collector", f.o.Primary), zap.Duration("behind", f.behind), zap.String("by", name))
}

// composed is what is shown: all of the collector that serves, of the secondary only
// sources that have rows, and of the other what the first does not have. A source
// is shown whole or not at all: one of the primary gives way when the secondary has
// rows of all its GPUs, or of those that it could read by the end of gathering.
func (f *Failover) composed(now time.Time) []*view.Source {
	first := append(slices.Clone(f.kept), f.primary...)
	second := slices.Clone(f.secondary)
	if f.serving == bySecondary {
		var late []*view.Source
		second = slices.DeleteFunc(second, func(s *view.Source) bool {
			ready := f.ready(s, now)
			if !ready {
				late = append(late, s)
			}
			return !ready
		})
		known, missing := devicesOf(second), map[string]bool{}
		if f.gathering(now) {
			missing = devicesOf(late)
		}
		first = slices.DeleteFunc(first, func(s *view.Source) bool { return overlaps(s, known) && !overlaps(s, missing) })
	}
	known := devicesOf(first)
	second = slices.DeleteFunc(second, func(s *view.Source) bool { return overlaps(s, known) })
	return append(first, second...)
}

// gathering reports whether the secondary has so recently taken over that sources
// of it which have no rows yet are waited for.
func (f *Failover) gathering(now time.Time) bool {
	return f.serving == bySecondary && now.Sub(f.began) < f.patience(f.secondary)/2
}

// publish shows what is composed if it differs from before.
func (f *Failover) publish(now time.Time) {
	sources := f.composed(now)
	if f.started && slices.Equal(sources, f.published) {
		return
	}
	f.published, f.started = sources, true
	f.o.Publish(sources)
}

// want says whether the secondary may rest. The last word counts.
func (f *Failover) want(rest bool) {
	if f.rest != rest {
		f.rest = rest
		poke(f.wake)
	}
}

// lacking reports whether the secondary has GPUs that the primary does not know.
func (f *Failover) lacking() bool {
	known := devicesOf(f.primary)
	for _, s := range gpusOf(f.secondary) {
		if slices.ContainsFunc(s.Devices, func(d collector.Device) bool { return d.Level == field.GPU && !known[d.ID] }) {
			return true
		}
	}
	return false
}

// ready reports whether a source of the secondary can replace what is shown: it has
// a value of one of its devices, and of each reading that was shown, those that take
// two rows included.
func (f *Failover) ready(s *view.Source, now time.Time) bool {
	if s.Interval == 0 {
		return true // of a GPU that is absent
	}
	if !latest(s, &f.row) || !slices.ContainsFunc(f.row.Stamps, func(stamp int64) bool { return stamp != 0 }) {
		return false
	}
	return complete(f.published, []*view.Source{s}, now, 4*f.o.Patience, patientRows)
}

// gpusOf are the sources with GPUs that are sampled: what is left of one that is
// absent has no interval.
func gpusOf(sources []*view.Source) (out []*view.Source) {
	for _, s := range sources {
		if s.Interval > 0 && slices.ContainsFunc(s.Devices, func(d collector.Device) bool { return d.Level == field.GPU }) {
			out = append(out, s)
		}
	}
	return out
}

func devicesOf(sources []*view.Source) map[string]bool {
	ids := map[string]bool{}
	for _, s := range sources {
		for i := range s.Devices {
			ids[s.Devices[i].ID] = true
		}
	}
	return ids
}

func overlaps(s *view.Source, known map[string]bool) bool {
	return slices.ContainsFunc(s.Devices, func(d collector.Device) bool { return known[d.ID] })
}
