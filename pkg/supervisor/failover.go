package supervisor

import (
	"context"
	"fmt"
	"maps"
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

// failoverPeriod is how often Failover reads the rings while something changes.
const failoverPeriod = 250 * time.Millisecond

// Node receives the decisions of a Failover. Its methods must not block.
type Node interface {
	// Publish receives the sources to show, in order.
	Page
	// Standby ends the secondary's session, so that it holds neither library nor driver, or starts one. The last call
	// counts.
	Standby(rest bool)
	// TakenOver receives which collector has taken over the GPUs, and why, in words.
	TakenOver(text string)
}

// FailoverOptions configure NewFailover.
type FailoverOptions struct {
	Node               Node
	Primary, Secondary string // names of the collectors, for logs and metrics

	// Patience is how long the primary's GPUs may have no new values. They must have new values for twice as long
	// before the primary serves the GPUs again. At start it serves them at once.
	Patience time.Duration

	Logger *zap.Logger
}

// Failover decides which of two collectors serves the GPUs that both can read, so that every readable GPU is reported
// exactly once. It only looks at the rings: advancing rows are the only reliable sign.
//
// The primary (DCGM) serves while its values advance. When they have not advanced for Patience, the secondary (NVML)
// takes over with each of its sources that has rows; its other sources follow when they are ready. The primary serves
// again when its values have advanced, without long gaps, for twice Patience and its view is complete. While the primary
// serves, the secondary is on standby, unless it has GPUs that the primary does not know.
//
// Its methods may be called from any goroutine; it starts none.
type Failover struct {
	o       FailoverOptions
	log     *zap.Logger
	active  *prometheus.GaugeVec
	changes *prometheus.CounterVec

	mu        sync.Mutex
	primary   []*view.Source
	secondary []*view.Source
	kept      []*view.Source // sources that the primary has withdrawn, shown until the secondary has rows
	serving   serving
	behind    time.Duration // time without advancing values of the primary, weighted
	advancing time.Duration // time with advancing values since it was last behind
	looked    time.Time
	lateAt    time.Time // when the primary's values will be late without a new one; zero: unknown
	began     time.Time // when the current collector began to serve
	seen      bool      // the primary has had values
	late      bool      // its values do not advance now
	failed    bool      // it has been behind since
	published []*view.Source
	started   bool // sources have been published
	rest      bool // the last request to the secondary
	row       ring.Row
}

// serving is the collector whose GPU values are shown.
type serving uint8

const (
	undecided serving = iota // neither has values yet: both are shown
	byPrimary
	bySecondary
)

// NewFailover returns a Failover with the secondary active and nothing to publish.
func NewFailover(o FailoverOptions) *Failover {
	f := &Failover{
		o: o, log: o.Logger.Named("failover"),
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

// Metrics returns what a registry needs: the serving collector and the takeovers.
func (f *Failover) Metrics() []prometheus.Collector {
	return []prometheus.Collector{f.active, f.changes}
}

// Ends returns the pages of the two collectors.
func (f *Failover) Ends() (primary, secondary Page) { return (*primaryEnd)(f), (*secondaryEnd)(f) }

type (
	primaryEnd   Failover
	secondaryEnd Failover
)

// Publish sets the primary's sources. If none of them has a GPU any more, the old ones stay until the secondary has
// rows; --stale-after ends their values if it never has.
func (e *primaryEnd) Publish(sources []*view.Source) {
	f := (*Failover)(e)
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(gpusOf(sources)) == 0 && len(gpusOf(f.primary)) > 0 {
		f.kept = gpusOf(f.primary)
	}
	f.primary = sources
	f.decide(time.Now())
}

// Publish sets the secondary's sources.
func (e *secondaryEnd) Publish(sources []*view.Source) {
	f := (*Failover)(e)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.secondary = sources
	f.decide(time.Now())
}

// Withdraw drops rows that the primary no longer has: after an operator has released it, none of its values may stay.
func (f *Failover) Withdraw() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept = nil
	f.publish(time.Now())
}

// DecideNow decides without waiting for more rows, for a page that is printed once.
func (f *Failover) DecideNow() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.decide(time.Now())
}

func (f *Failover) name(s serving) string {
	return [...]string{"", f.o.Primary, f.o.Secondary}[s]
}

// Run decides periodically until ctx ends.
func (f *Failover) Run(ctx context.Context) error {
	for {
		pause, late := f.pause()
		wait := view.Tick(pause)
		if late < pause {
			wait = time.After(late)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-wait:
			f.DecideNow()
		}
	}
}

// pause returns the time to the next decision, and the time until the primary's values are late. The first is longer
// while nothing changes, because each wakeup costs CPU time.
func (f *Failover) pause() (pause, late time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	pause, late = failoverPeriod, 4*failoverPeriod
	if f.serving != undecided && f.behind == 0 && time.Since(f.began) > 2*f.o.Patience {
		pause = 4 * failoverPeriod
	}
	if !f.lateAt.IsZero() {
		late = max(time.Until(f.lateAt), failoverPeriod)
	}
	return pause, late
}

// decide evaluates the rings, publishes changes, and requests or ends the secondary's standby.
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
		if f.behind >= f.patience(f.primary) && f.fresh(f.secondary, now) {
			next = bySecondary
		}
	case bySecondary:
		ready := !f.failed || f.advancing >= 2*f.o.Patience || !f.fresh(f.secondary, now)
		rows := uint64(math.MaxUint64) // do not give up waiting for any cell of the primary
		if f.advancing >= 6*f.o.Patience {
			rows = 0
		}
		if fresh && ready && f.behind == 0 && complete(f.published, sampled(f.primary), now, f.o.Patience, rows) {
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
	f.want(f.serving == byPrimary && fresh && f.behind == 0 && now.Sub(f.began) >= 2*f.o.Patience && !f.lacking())
}

// forgotten reports whether the primary's withdrawn sources are too old for any page: --stale-after has ended their
// values.
func (f *Failover) forgotten(now time.Time) bool {
	age, known := f.age(f.kept, now)
	return !known || age > 8*f.patience(f.kept)
}

// measure adds the time since its last call to the time with advancing values of the primary, or to the time without.
// One new value after a long gap does not make up for the gap: time behind is paid back second by second.
func (f *Failover) measure(now time.Time) {
	passed := min(max(now.Sub(f.looked), 0), time.Second)
	if f.looked.IsZero() {
		passed = 0
	}
	f.looked = now
	age, known := f.age(f.primary, now)
	f.seen = f.seen || known
	if f.lateAt = (time.Time{}); known {
		f.lateAt = now.Add(f.tolerance() - age + time.Millisecond)
	}
	patience := f.patience(f.primary)
	if late := f.seen && (!known || age > f.tolerance()); late != f.late {
		f.late = late
		f.log.Debug("progress of the GPUs' values changed", zap.String("collector", f.o.Primary), zap.Bool("advance", !late), zap.Duration("age", age),
			zap.Duration("tolerance", f.tolerance()), zap.Duration("behind", f.behind), zap.Duration("patience", patience))
	}
	switch {
	case !f.seen: // not opened yet
	case !known:
		f.behind, f.advancing = patience, 0
	case age > f.tolerance():
		f.behind = min(max(f.behind+passed, min(age, patience)), 2*patience)
		f.advancing = 0
	default:
		f.behind = max(f.behind-passed, 0)
		f.advancing += passed
	}
	f.failed = f.failed || f.behind >= patience
}

// patience returns how long GPUs may be without new values. It exceeds the option if the list has only slow fields.
func (f *Failover) patience(sources []*view.Source) time.Duration {
	return max(f.o.Patience, 2*slowest(sources))
}

// tolerance is the maximum age of values that advance: 3/5 of patience or one and a half intervals of the source. It
// does not follow a fast field of the list: an engine reads in its own rhythm, so that values are often two seconds old.
func (f *Failover) tolerance() time.Duration {
	return max(f.patience(f.primary)*3/5, slowest(f.primary)*3/2)
}

// slowest returns the longest interval of the sources with GPUs.
func slowest(sources []*view.Source) (interval time.Duration) {
	for _, s := range gpusOf(sources) {
		interval = max(interval, s.Interval)
	}
	return interval
}

// age returns the median age of the sources' newest GPU values; false if no GPU has one. With the median, a single GPU
// that hangs does not count against the collector.
func (f *Failover) age(sources []*view.Source, now time.Time) (time.Duration, bool) {
	var stamps []int64
	seen := false
	for _, s := range gpusOf(sources) {
		if !s.Latest(&f.row) {
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

// fresh reports whether most GPUs of the sources have current values.
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
	why := ": its values advance again"
	if next != byPrimary {
		why = fmt.Sprintf(": %s lacked new values for %v", f.o.Primary, f.behind.Round(100*time.Millisecond))
	}
	f.o.Node.TakenOver("collector " + name + " serves the GPUs now" + why)
	if next == byPrimary {
		f.log.Info("collector serves the GPUs again", zap.String("collector", name))
		return
	}
	f.log.Warn("stale values, failing over to another collector",
		zap.String("collector", f.o.Primary), zap.Duration("behind", f.behind), zap.String("by", name))
}

// composed returns the sources to show: all sources of the serving collector (of the secondary, only those with rows),
// and the other collector's sources for devices that the first does not have. A source is shown whole or not at all: a
// primary source is replaced when the secondary has rows for all its GPUs, or for those that it could read by the end
// of gathering.
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
	known := devicesOf(sampled(first))
	second = slices.DeleteFunc(second, func(s *view.Source) bool { return overlaps(s, known) })
	// The events of an absent GPU are shown once, and only if no collector samples the GPU.
	known = devicesOf(sampled(append(slices.Clip(first), second...)))
	return slices.DeleteFunc(append(first, second...), func(s *view.Source) bool {
		if s.Interval > 0 {
			return false
		}
		if overlaps(s, known) {
			return true
		}
		maps.Copy(known, devicesOf([]*view.Source{s}))
		return false
	})
}

// gathering reports whether the secondary took over so recently that its sources without rows may still get some.
func (f *Failover) gathering(now time.Time) bool {
	return f.serving == bySecondary && now.Sub(f.began) < f.patience(f.secondary)/2
}

// publish publishes the composed sources if they have changed.
func (f *Failover) publish(now time.Time) {
	sources := f.composed(now)
	if f.started && slices.Equal(sources, f.published) {
		return
	}
	f.published, f.started = sources, true
	f.o.Node.Publish(sources)
}

// want requests or ends the secondary's standby. The last request counts.
func (f *Failover) want(rest bool) {
	if f.rest != rest {
		f.rest = rest
		f.log.Debug("changing the standby of a collector", zap.String("collector", f.o.Secondary), zap.Bool("standby", rest))
		f.o.Node.Standby(rest)
	}
}

// lacking reports whether the primary has lost a GPU within the last hour, or lacks one that the secondary samples.
func (f *Failover) lacking() bool {
	known := devicesOf(sampled(f.primary))
	return len(known) < len(devicesOf(f.primary)) || slices.ContainsFunc(gpusOf(f.secondary), func(s *view.Source) bool {
		return slices.ContainsFunc(s.Devices, func(d collector.Device) bool { return d.Level == field.GPU && !known[d.ID] })
	})
}

// ready reports whether a source of the secondary can replace the shown ones: it has a value for one of its devices and
// for each reading that was shown, including readings that take two rows.
func (f *Failover) ready(s *view.Source, now time.Time) bool {
	if s.Interval == 0 {
		return true // an absent GPU's source
	}
	if !s.Latest(&f.row) || !slices.ContainsFunc(f.row.Stamps, func(stamp int64) bool { return stamp != 0 }) {
		return false
	}
	return complete(f.published, []*view.Source{s}, now, 4*f.o.Patience, patientRows)
}

// sampled returns the sources that have a session. The source of an absent GPU has no interval.
func sampled(sources []*view.Source) []*view.Source {
	return slices.DeleteFunc(slices.Clone(sources), func(s *view.Source) bool { return s.Interval == 0 })
}

// gpusOf returns the sources with sampled GPUs.
func gpusOf(sources []*view.Source) []*view.Source {
	return slices.DeleteFunc(sampled(sources), func(s *view.Source) bool {
		return !slices.ContainsFunc(s.Devices, func(d collector.Device) bool { return d.Level == field.GPU })
	})
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
