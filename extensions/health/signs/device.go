package signs

import (
	"fmt"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/rules"
)

// device is the memory of a device through all sessions that sample it.
type device struct {
	collector.Device
	gpu     *device // or switch that it is part of; nil: none
	divided bool    // there are instances of it
	bound   int64   // when it was on the board last, Unix ns
	sampled int64   // stamp of the newest row
	every   int64   // how often something of it is read, ns

	counters map[counterKey]*float64 // their last values; NaN: not read yet
	alarms   [alarms]alarm

	corrected hour
	bucket    bucket
	low, none float64 // banks with few spare rows, and without; -1: not known
	links     links   // of a link, or of all links of a GPU together
	throttled [field.ClockReasons]hour
	slowed    hour // by at least one of rules.ThrottlingReasons
	means     means
	group     string // of devices it is compared with; "": none
	deviation [deviations]float64
	straggles bool
	calls     calls // of the source whose first device this is
}

// counterKey names a counter of a device.
type counterKey struct {
	field  field.ID
	labels string
}

func newDevice() *device {
	return &device{counters: make(map[counterKey]*float64), low: -1, none: -1, deviation: noDeviation}
}

func (d *device) isLink() bool { return d.Level == field.Link }

// fresh reports whether something of the device was read lately.
func (d *device) fresh(now int64) bool {
	return d.sampled > 0 && now-d.sampled <= max(int64(fresh), 3*d.every)
}

// The signs of a device.
const (
	alarmCorrected = iota
	alarmSpareRows
	alarmLinks
	alarmThrottled
	alarmStraggler
	alarmCalls
	alarms
)

// alarmNames are reasons of the rules of package health.
var alarmNames = [alarms]string{"corrected_errors", "spare_rows_low", "nvlink_errors", "throttled", "straggler", "slow_calls"}

// times are for how long a value must be beyond its threshold until a sign begins, and well below
// it until it ends. The process before may have told a begin: after the start an end is told when
// its window has passed.
type times struct{ on, off, start time.Duration }

var alarmTimes = [alarms]times{
	alarmCorrected: {0, 0, 12 * time.Hour},
	alarmSpareRows: {time.Minute, 10 * time.Minute, 10 * time.Minute},
	alarmLinks:     {time.Minute, 10 * time.Minute, time.Hour},
	alarmThrottled: {0, 0, time.Hour},
	alarmStraggler: {behindFor, behindFor, behindFor},
	alarmCalls:     {3 * time.Minute, 10 * time.Minute, 10 * time.Minute},
}

// alarm is whether a sign holds.
type alarm struct {
	holds, known bool
	begins       bool  // what since is about
	since        int64 // from when on the value asks for a change; 0: it does not
}

// update takes what the value says now, and reports whether holds is to be told.
func (a *alarm) update(now int64, beyond, calm bool, t times) bool {
	begins, wanted, wait := !a.holds && (beyond || a.known), calm, t.off
	switch {
	case begins:
		wanted, wait = beyond, t.on
	case !a.known:
		wait = t.start
	}
	if !wanted {
		a.since = 0
		return false
	}
	if a.since == 0 || a.begins != begins || now < a.since { // or the clock was set back
		a.since, a.begins = now, begins
	}
	if now-a.since < int64(wait) {
		return false
	}
	a.since, a.holds, a.known = 0, begins, true
	return true
}

// grown returns by how much a counter has grown. One that went back was reset, as by a driver
// that was loaded again.
func grown(before *float64, value float64) float64 {
	by := value - *before
	*before = value
	return max(0, by) // of NaN, NaN
}

// hour sums what happened within the last hour, in steps of five minutes.
type hour struct {
	slots [12]float64
	last  int64 // number of the newest one
	total float64
	used  bool // something was added, were it 0
}

const hourStep = int64(5 * time.Minute)

func (h *hour) add(at int64, v float64) {
	h.used = true
	h.advance(at)
	if v > 0 { // not NaN
		h.slots[h.last%int64(len(h.slots))] += v
		h.total += v
	}
}

func (h *hour) advance(at int64) {
	slot, n := at/hourStep, int64(len(h.slots))
	if slot <= h.last && h.last-slot < n {
		return
	}
	if slot < h.last || slot-h.last >= n { // the clock was set back, or nothing is left
		h.slots, h.last, h.total = [12]float64{}, slot, 0
		return
	}
	for h.last < slot {
		h.last++
		h.slots[h.last%n] = 0
	}
	h.total = 0
	for _, v := range h.slots {
		h.total += v
	}
}

// bucket is a leaky bucket of corrected errors: rules.CorrectedErrorsPerDay leak in a day, and no more fit.
type bucket struct {
	level float64
	at    int64
	full  bool // it was, at some time since the last judgement: it leaks from then on
}

func (b *bucket) add(by float64, at int64) {
	if at > b.at {
		b.level = max(0, b.level-float64(at-b.at)*rules.CorrectedErrorsPerDay/float64(24*time.Hour))
	}
	if at > b.at || b.at-at > int64(10*time.Minute) { // else it is a row of before the last judgement
		b.at = at
	}
	if by > 0 { // not NaN
		b.level = min(b.level+by, rules.CorrectedErrorsPerDay)
		b.full = b.full || b.level == rules.CorrectedErrorsPerDay
	}
}

// linkBudgets are for an hour, by kind of error.
var linkBudgets = [linkKinds]float64{rules.LinkCRCErrorsPerHour, rules.LinkErrorsPerHour, rules.LinkRecoveriesPerHour}

// Kinds of errors of links.
const (
	linkCRC = iota
	linkOther
	linkRecovery
	linkKinds
	linkBER = linkKinds // not counted
)

var linkNames = [linkKinds + 1]string{"CRC errors", "replays and other errors", "recoveries", "bit error rate"}

// links are the errors of a link, or of all links of a GPU, within the last hour.
type links struct {
	of    [linkKinds]hour
	ber   float64 // effective; 0: none, or not known
	known bool
	share float64 // of the budget that is used, for the worst kind
	kind  int
	worst *device // the device or that of its links that has used most; nil: nothing is known
}

// sum brings the share up to date.
func (l *links) sum(now int64) {
	l.share, l.kind = l.ber/rules.EffectiveBER, linkBER
	for k := range l.of {
		l.of[k].advance(now)
		if share := l.of[k].total / linkBudgets[k]; share > l.share {
			l.share, l.kind = share, k
		}
	}
}

func (d *device) worseLink(link *device) {
	if l := &d.links; l.worst == nil || l.worst.links.share < link.links.share {
		l.worst = link
	}
}

// linkName names a link as its label nvlink does; "all": those of a GPU together.
func (d *device) linkName() string {
	if name := d.Label("nvlink"); name != "" {
		return name
	}
	return "all"
}

// throttling are the reasons that are shown: those that are faults if they last, and the
// power limit and the clocks of a group, at which a busy GPU may always run.
const throttling = rules.ThrottlingReasons | 1<<2 | 1<<4

// mask takes the clock event reasons, which stand for some seconds up to now.
func (d *device) mask(value float64, at int64, seconds float64) {
	if value >= 1<<32 {
		return
	}
	bits := uint64(value)
	for i := range d.throttled {
		if bits&throttling>>i&1 == 1 {
			d.throttled[i].add(at, seconds)
		}
	}
	if bits&rules.ThrottlingReasons == 0 {
		seconds = 0
	}
	d.slowed.add(at, seconds)
}

// describe says in words what an alarm of the device stands on.
func (d *device) describe(n int) string {
	switch n {
	case alarmCorrected:
		return fmt.Sprintf("%.0f corrected memory errors within the last hour", d.corrected.total)
	case alarmSpareRows:
		return fmt.Sprintf("%.0f memory banks without a spare row", d.none)
	case alarmLinks:
		worst := d.links.worst
		return fmt.Sprintf("link %s: %.2g times the budget of an hour for %s", worst.linkName(), worst.links.share, linkNames[worst.links.kind])
	case alarmThrottled:
		return fmt.Sprintf("clocks were held down for %.0f s of the last hour", d.slowed.total)
	case alarmCalls:
		return fmt.Sprintf("a sample takes %.2g s in the library, which took %.2g s before", d.calls.mean, d.calls.baseline)
	}
	return fmt.Sprintf("the clock is %.0f %% below the median of GPUs with the same work", -100*d.deviation[deviationClock])
}
