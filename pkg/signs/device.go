package signs

import (
	"fmt"
	"math"
	"strings"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// device is what is kept of a device through all sessions that sample it.
type device struct {
	collector.Device
	gpu     *device // that it is part of; nil: none
	divided bool    // there are instances of it
	bound   int64   // when it was on the board last, Unix ns
	sampled int64   // stamp of the newest row
	every   int64   // how often something of it is read, ns

	counters map[counterKey]*counter
	alarms   [alarms]alarm

	corrected hour
	bucket    bucket
	banks     banks
	links     links // of a link, or of all links of a GPU
	throttled [field.ClockReasons]hour
	slowed    hour // in which at least one of slowing was active
	means     means
	group     string // of devices it is compared with; "": none
	deviation [deviations]float64
}

// The alarms of a device; that of library calls is a source's.
const (
	alarmCorrected = iota
	alarmSpareRows
	alarmLinks
	alarmThrottled
	alarmStraggler
	alarms
)

// alarmNames are their signs.
var alarmNames = [alarms]string{CorrectedErrors, SpareRowsLow, NVLinkErrors, Throttled, Straggler}

func isLink(d *device) bool { return d.Level == field.Link }

// counterKey names a counter of a device.
type counterKey struct {
	field  field.ID
	labels string
}

// counter is what a counter was last.
type counter struct{ value float64 } // NaN: nothing yet

// grown returns by how much the counter has grown since the last time. One that went back was
// reset, as by a driver that was loaded again.
func (c *counter) grown(value float64) float64 {
	before := c.value
	c.value = value
	if math.IsNaN(before) || value < before {
		return 0
	}
	return value - before
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
	h.slots[h.last%int64(len(h.slots))] += v
	h.total += v
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
		h.slots[h.last%int64(len(h.slots))] = 0
	}
	h.total = 0
	for _, v := range h.slots {
		h.total += v
	}
}

// sum is what happened in the hour up to at.
func (h *hour) sum(at int64) float64 {
	h.advance(at)
	return h.total
}

// What Azure's node health checks take for too many corrected errors in the life of a driver
// (azurehpc, check_gpu_ecc) is what the bucket leaks in a day.
const (
	mostCorrected = 10_000
	bucketLeaks   = mostCorrected / float64(24*time.Hour)
	bucketCalm    = mostCorrected / 2
)

// bucket is a leaky bucket of corrected errors. It overflows at mostCorrected.
type bucket struct {
	level float64
	at    int64
}

func (b *bucket) add(by float64, at int64) {
	if at > b.at && b.at > 0 {
		b.level -= float64(at-b.at) * bucketLeaks
	}
	b.level = min(max(b.level+by, 0), mostCorrected)
	b.at = at
}

// banks are the memory banks that are short of spare rows.
type banks struct{ low, none float64 }

// Budgets of a link, for an hour. CRC errors count from 100 a second on (DCGM: that is what
// NVIDIA's driver team says). DCGM calls one replay, recovery or other error in a minute
// critical; a budget is one that is spent if that is so for most of an hour, or every six
// minutes for recoveries, each of which stops the link. The ratio is DCGM's limit of the
// effective error rate.
const (
	budgetCRC        = 100 * 3600
	budgetErrors     = 60
	budgetRecoveries = 10
	budgetBER        = 1e-12
)

// links are the errors of a link, or of all links of a GPU, within the last hour.
type links struct {
	of    [linkKinds]hour
	ber   float64 // effective; 0: none, or not known
	known bool
	share float64 // of the budget that is used, for the kind of which that is most
	kind  linkKind
	worst *device // the device or that of its links that has used most; nil: nothing is known
}

// linkKind is a kind of error with a budget of its own.
type linkKind uint8

// Kinds of errors of links.
const (
	linkCRC linkKind = iota
	linkOther
	linkRecovery
	linkKinds
	linkBER = linkKinds // not counted
)

var (
	linkBudgets = [linkKinds]float64{budgetCRC, budgetErrors, budgetRecoveries}
	linkNames   = [linkKinds + 1]string{"CRC errors", "replays and other errors", "recoveries", "bit error rate"}
)

// sum brings the share up to date.
func (l *links) sum(now int64) {
	l.share, l.kind = l.ber/budgetBER, linkBER
	for k := range l.of {
		if share := l.of[k].sum(now) / linkBudgets[k]; share > l.share {
			l.share, l.kind = share, linkKind(k)
		}
	}
}

// Reasons for which clocks are held down although the GPU should run: hw_slowdown, sw_thermal,
// hw_thermal and hw_power_brake. The others are settings, or the power limit, at which a busy
// GPU always runs.
const slowing = 1<<3 | 1<<5 | 1<<6 | 1<<7

const (
	mostSlowed = 15 * time.Minute // of an hour
	calmSlowed = 5 * time.Minute
)

// mask takes the clock event reasons, which stand for a time up to now, ns.
func (d *device) mask(value float64, at, since int64) {
	if value >= 1<<32 {
		return
	}
	seconds, bits := float64(since)/float64(time.Second), uint64(value)
	for i := range d.throttled {
		if bits>>i&1 == 1 && reasonCounts(i) {
			d.throttled[i].add(at, seconds)
		}
	}
	if bits&slowing == 0 {
		seconds = 0
	}
	d.slowed.add(at, seconds)
}

// reasonCounts reports whether a bit of the clock event reasons is throttling: not idleness and
// not a setting.
func reasonCounts(bit int) bool { return slowing>>bit&1 == 1 || bit == 2 || bit == 4 }

// Times of the alarms.
const (
	shortly = time.Minute
	calmFor = 10 * time.Minute
)

// judge decides which signs of a device hold.
func (s *Signs) judge(d *device, now int64) {
	if !d.fresh(now) {
		return // nothing new is known
	}
	for i := range d.throttled {
		d.throttled[i].advance(now)
	}
	if d.corrected.used {
		d.corrected.advance(now)
		d.bucket.add(0, max(now, d.bucket.at))
		s.update(d, alarmCorrected, now, d.bucket.level >= mostCorrected, d.bucket.level <= bucketCalm, 0, 0)
	}
	if d.banks.none >= 0 {
		s.update(d, alarmSpareRows, now, d.banks.none >= 1, d.banks.none == 0, shortly, calmFor)
	}
	if d.slowed.used {
		sum := d.slowed.sum(now)
		s.update(d, alarmThrottled, now, sum >= mostSlowed.Seconds(), sum <= calmSlowed.Seconds(), 0, 0)
	}
	if worst := d.links.worst; worst != nil && !isLink(d) {
		s.update(d, alarmLinks, now, worst.links.share >= 1, worst.links.share <= 0.5, shortly, calmFor)
	}
}

// fresh reports whether something of the device was read lately.
func (d *device) fresh(now int64) bool {
	return d.sampled > 0 && now-d.sampled <= max(int64(fresh), 3*d.every)
}

// sumLinks finds the link of each device that has used most of its budget.
func (s *Signs) sumLinks(now int64) {
	for _, d := range s.present {
		d.links.worst = nil
		if d.links.known {
			d.links.sum(now)
			d.links.worst = d
		}
	}
	for _, d := range s.present {
		if l := &d.links; isLink(d) && l.known && d.gpu != nil && (d.gpu.links.worst == nil || d.gpu.links.worst.links.share < l.share) {
			d.gpu.links.worst = d
		}
	}
}

// update updates an alarm of a device and tells the change.
func (s *Signs) update(d *device, n int, now int64, beyond, calm bool, on, off time.Duration) {
	if a := &d.alarms[n]; a.update(now, beyond, calm, on, off) {
		s.tell(d, alarmNames[n], d.describe(n, now), now, !a.holds)
	}
}

// describe says in words what an alarm of the device stands on.
func (d *device) describe(n int, now int64) string {
	switch n {
	case alarmCorrected:
		return fmt.Sprintf("%.0f corrected memory errors within the last hour", d.corrected.sum(now))
	case alarmSpareRows:
		return fmt.Sprintf("%.0f memory banks without a spare row, %.0f with few", d.banks.none, max(d.banks.low, 0))
	case alarmLinks:
		l := &d.links.worst.links
		return fmt.Sprintf("%s: %s are %.0f times what the budget of an hour allows", d.links.worst.ID, linkNames[l.kind], l.share)
	case alarmStraggler:
		return fmt.Sprintf("the clock is %.0f %% below the median of GPUs with the same work", -100*d.deviation[deviationClock])
	case alarmThrottled:
		var reasons []string
		for i := range d.throttled {
			if sum := d.throttled[i].sum(now); sum > 0 && slowing>>i&1 == 1 {
				name, _ := field.ClockReason(i)
				reasons = append(reasons, name)
			}
		}
		return fmt.Sprintf("clocks were held down for %.0f s of the last hour: %s", d.slowed.sum(now), strings.Join(reasons, ", "))
	}
	return ""
}
