package supervisor

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
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
	// Standby ends the secondary's session, so that it holds neither library nor driver, or starts one. The last call counts.
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
	Patience   time.Duration
	StaleAfter time.Duration // the age at which values leave the page

	Logger *zap.Logger
}

// Failover decides which of two collectors serves the GPUs that both can read, so that every readable GPU is reported
// exactly once. It only looks at the rings: advancing rows are the only reliable sign.
//
// The primary (DCGM) serves while its values advance. When they have not advanced for Patience, the secondary (NVML)
// takes over with each of its sources that has rows; the last rows of the other GPUs stay until it has some. The primary
// serves again when its values have advanced, without long gaps, for twice Patience and its view is complete. While the
// primary serves, the secondary is on standby, unless it has GPUs that the primary does not read or has lost lately.
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
	kept      []*view.Source       // the last rows of GPUs, until a collector has others
	lost      map[string]time.Time // when the primary has lost a GPU
	serving   serving
	behind    time.Duration // time without advancing values of the primary, weighted
	advancing time.Duration // time with advancing values since it was last behind
	looked    time.Time
	stamp     int64     // of the primary's values
	moved     time.Time // when it moved, by the clock of then
	lateAt    time.Time // when the primary's values will be late without a new one
	began     time.Time // when the current collector began to serve
	seen      bool      // the primary has had values
	late      bool      // its values do not advance now
	failed    bool      // it has been behind since
	published []*view.Source
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
		o: o, lost: map[string]time.Time{}, log: o.Logger.Named("failover"),
		active:  prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "warpgauge_gpu_speaker", Help: "1 for the collector whose values of the NVIDIA GPUs are shown, 0 for the other."}, []string{"collector"}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "warpgauge_gpu_takeovers_total", Help: "Times that this collector took the NVIDIA GPUs over from the other."}, []string{"collector"}),
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

// Publish sets the primary's sources. The last row of a GPU that it no longer has stays.
func (e *primaryEnd) Publish(sources []*view.Source) {
	f := (*Failover)(e)
	f.mu.Lock()
	defer f.mu.Unlock()
	now, known := time.Now(), devicesOf(sampled(sources))
	for id := range devicesOf(gpusOf(f.primary)) {
		f.lost[id] = now
	}
	maps.DeleteFunc(f.lost, func(id string, _ time.Time) bool { return known[id] })
	f.keep(f.primary, known)
	f.primary = sources
	f.decide(now)
}

// Publish sets the secondary's sources.
func (e *secondaryEnd) Publish(sources []*view.Source) {
	f := (*Failover)(e)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keep(f.secondary, devicesOf(slices.DeleteFunc(slices.Clone(sources), func(s *view.Source) bool { return len(s.Columns) == 0 })))
	f.secondary = sources
	f.decide(time.Now())
}

// Withdraw drops rows that the primary no longer has: after an operator has released it, none of its values may stay.
// What comes next is a start.
func (f *Failover) Withdraw() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept, f.seen, f.late, f.failed, f.behind, f.serving = nil, false, false, false, 0, undecided
	clear(f.lost)
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
	pause = failoverPeriod
	if f.serving != undecided && f.behind == 0 && time.Since(f.began) > 2*f.o.Patience {
		pause = 4 * failoverPeriod
	}
	return pause, max(time.Until(f.lateAt), failoverPeriod)
}

// decide evaluates the rings, publishes changes, and requests or ends the secondary's standby.
func (f *Failover) decide(now time.Time) {
	f.measure(now)
	fresh := f.fresh(f.primary, now, false)
	next := f.serving
	switch f.serving {
	case undecided:
		if fresh {
			next = byPrimary
		} else if f.fresh(f.secondary, now, true) {
			next = bySecondary
		}
	case byPrimary:
		if f.behind >= f.patience(f.primary) && f.late && f.fresh(f.secondary, now, true) {
			next = bySecondary
		}
	case bySecondary:
		ready := !f.failed || f.advancing >= 2*f.o.Patience || !f.fresh(f.secondary, now, true)
		whole := f.advancing >= 6*f.o.Patience || complete(f.published, sampled(f.primary), now, f.o.Patience, math.MaxUint64)
		if fresh && ready && f.behind == 0 && whole {
			next = byPrimary
		}
	}
	if next != f.serving {
		f.change(next, now)
	}
	f.publish(now)
	f.want(f.serving == byPrimary && fresh && f.behind == 0 && now.Sub(f.began) >= 2*f.o.Patience && !f.lacking(now))
}

// keep keeps the last rows of the sources' GPUs and their parts, except those in known.
func (f *Failover) keep(sources []*view.Source, known map[string]bool) {
	kept := devicesOf(f.kept)
	for _, s := range gpusOf(sources) {
		for _, d := range s.Devices {
			if d.Level == field.GPU && !known[d.ID] && !kept[d.ID] && s.Latest(&f.row) {
				last := cut(s, &f.row, func(id string) bool { return id == d.ID || strings.HasPrefix(id, d.ID+"/") }, func(field.ID) bool { return true })
				last.Collector, last.Interval = f.o.Secondary, s.Interval // the secondary says from now on how the GPU is
				f.kept = append(f.kept, last)
			}
		}
	}
}

// measure adds the time since its last call to the time with advancing values of the primary, or to the time without.
// One new value after a long gap does not make up for the gap: time behind is paid back second by second.
func (f *Failover) measure(now time.Time) {
	passed := min(max(now.Sub(f.looked), 0), time.Second)
	if f.looked.IsZero() {
		passed = 0
	}
	f.looked = now
	stamp := f.stampOf(f.primary, false)
	if stamp != f.stamp {
		f.moved = now
		if stamp > f.stamp { // otherwise the clock was set back
			f.moved = now.Add(min(0, time.Unix(0, stamp).Sub(now)))
		}
		f.stamp = stamp
	}
	age := now.Sub(f.moved) // not since stamp, because the clock may have been set
	f.seen = f.seen || f.fresh(f.primary, now, false)
	f.late = f.seen && (stamp == 0 || age > f.tolerance())
	f.lateAt = now.Add(4 * failoverPeriod)
	if stamp != 0 {
		f.lateAt = now.Add(f.tolerance() - age + time.Millisecond)
	}
	patience := f.patience(f.primary)
	switch {
	case !f.seen: // not opened yet
	case stamp == 0:
		f.behind, f.advancing = patience, 0
	case f.late:
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

// stampOf returns the median stamp of the sources' GPUs, or the newest; 0 if there is none. With the median, a single GPU
// that hangs does not count against the collector.
func (f *Failover) stampOf(sources []*view.Source, newest bool) int64 {
	stamps := slices.Sorted(maps.Values(f.stamps(sources)))
	if newest || len(stamps) == 0 {
		return slices.Max(append(stamps, 0))
	}
	return stamps[len(stamps)/2]
}

// stamps returns the stamps of the sources' GPUs.
func (f *Failover) stamps(sources []*view.Source) map[string]int64 {
	out := map[string]int64{}
	for _, s := range gpusOf(sources) {
		for i, d := range s.Devices {
			if d.Level == field.GPU && s.Latest(&f.row) {
				out[d.ID] = f.row.Stamps[i]
			}
		}
	}
	return out
}

// fresh reports whether most GPUs of the sources, or any, have current values.
func (f *Failover) fresh(sources []*view.Source, now time.Time, anyGPU bool) bool {
	age := now.Sub(time.Unix(0, f.stampOf(sources, anyGPU)))
	return age <= f.patience(sources) && age >= -f.o.Patience // otherwise the clock was set back
}

func (f *Failover) change(next serving, now time.Time) {
	before := f.serving
	f.serving, f.began = next, now
	if next == bySecondary {
		f.keep(f.primary, nil)
	}
	name := f.name(next)
	f.active.WithLabelValues(f.name(byPrimary + bySecondary - next)).Set(0)
	f.active.WithLabelValues(name).Set(1)
	if before == undecided || !f.failed {
		f.log.Info("collector serves the GPUs", zap.String("collector", name))
		return
	}
	f.changes.WithLabelValues(name).Inc()
	level, why := zap.InfoLevel, "its values advance again"
	if next == bySecondary {
		level, why = zap.WarnLevel, fmt.Sprintf("%s has had no new values for %v", f.o.Primary, now.Sub(f.moved).Round(100*time.Millisecond))
	}
	f.o.Node.TakenOver("collector " + name + " serves the GPUs now: " + why)
	f.log.Log(level, "collector takes the GPUs over", zap.String("collector", name), zap.String("reason", why))
}

// composed returns the sources to show: those of the serving collector, those of the other for devices that the first
// does not have, and the kept rows of other GPUs, which give way to sources with rows.
func (f *Failover) composed(now time.Time) (out []*view.Source) {
	f.kept = slices.DeleteFunc(f.kept, func(s *view.Source) bool {
		return now.Sub(time.Unix(0, f.stampOf([]*view.Source{s}, true))) > s.StaleAfter(0, f.o.StaleAfter)
	})
	kept := devicesOf(f.kept)
	second := slices.DeleteFunc(slices.Clone(f.secondary), func(s *view.Source) bool { return overlaps(s, kept) && !f.ready(s, now) })
	order := slices.Concat(f.primary, second, f.kept)
	switch f.serving {
	case bySecondary:
		order = slices.Concat(second, f.kept, f.primary)
	case byPrimary: // of a GPU that the primary lists and does not read, the first source counts
		listed, read, other := devicesOf(sampled(f.primary)), f.read(f.primary, now), f.read(f.secondary, now)
		out = slices.DeleteFunc(sampled(second), func(s *view.Source) bool {
			return overlaps(s, read) || !overlaps(s, other) || !overlaps(s, listed)
		})
	}
	known := map[string]bool{}
	for _, events := range []bool{false, true} { // the events of an absent GPU are shown once, and only if no collector samples it
		for _, s := range order {
			if events == (s.Interval == 0) && !overlaps(s, known) {
				out = append(out, s)
				maps.Copy(known, devicesOf(out[len(out)-1:]))
			}
		}
	}
	f.kept = slices.DeleteFunc(f.kept, func(s *view.Source) bool { return !slices.Contains(out, s) })
	return out
}

// publish publishes the composed sources if they have changed.
func (f *Failover) publish(now time.Time) {
	sources := f.composed(now)
	if slices.Equal(sources, f.published) {
		return
	}
	f.published = sources
	f.o.Node.Publish(sources)
}

// want requests or ends the secondary's standby. The last request counts.
func (f *Failover) want(rest bool) {
	if f.rest != rest {
		f.rest = rest
		f.o.Node.Standby(rest)
	}
}

// lacking reports whether the primary has lost a GPU within the last hour, or lacks one that the secondary has, or values
// of one that the secondary reads.
func (f *Failover) lacking(now time.Time) bool {
	maps.DeleteFunc(f.lost, func(_ string, at time.Time) bool { return now.Sub(at) > absentFor })
	read, other, listed := f.read(f.primary, now), f.read(f.secondary, now), devicesOf(sampled(f.primary))
	for id := range f.stamps(f.secondary) {
		if !listed[id] || other[id] && !read[id] {
			return true
		}
	}
	return len(f.lost) > 0
}

// read reports for each GPU of the sources whether its values are not old.
func (f *Failover) read(sources []*view.Source, now time.Time) map[string]bool {
	out := map[string]bool{}
	for id, stamp := range f.stamps(sources) {
		out[id] = now.Sub(time.Unix(0, stamp)) < 4*f.patience(sources)
	}
	return out
}

// ready reports whether a source of the secondary can replace kept rows: it has a value for one of its devices and for each
// reading that was shown, or two rows if the kept ones are old.
func (f *Failover) ready(s *view.Source, now time.Time) bool {
	rows := map[bool]uint64{false: patientRows, true: 2}[now.Sub(time.Unix(0, f.stampOf(f.kept, true))) > min(f.patience(f.kept)*3/2, f.o.StaleAfter*3/4)]
	return s.Latest(&f.row) && slices.ContainsFunc(f.row.Stamps, func(stamp int64) bool { return stamp != 0 }) && complete(f.published, []*view.Source{s}, now, f.o.StaleAfter, rows)
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
