package signs

import (
	"fmt"
	"math"
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
	since   int64   // how long that row stands for, ns
	every   int64   // how often something of it is read, ns

	last   map[cell]*float64 // values; NaN: not read yet
	values [rules.DerivedReadings]float64

	corrected hour
	bucket    bucket
	low       float64 // banks with few spare rows; NaN: not known
	links     links   // of a link, or of all links of a GPU together
	throttled [field.ClockReasons]hour
	slowed    hour // by at least one of rules.ThrottlingReasons
	means     means
	group     string // of devices it is compared with; "": none
	deviation [deviations]float64
}

// cell names a reading of a device.
type cell struct {
	field  field.ID
	labels string
}

func newDevice() *device {
	d := &device{last: make(map[cell]*float64), low: math.NaN(), deviation: noDeviation}
	for i := range d.values {
		d.values[i] = math.NaN()
	}
	return d
}

// fresh reports whether something of the device was read lately.
func (d *device) fresh(now int64) bool {
	return d.sampled > 0 && now-d.sampled <= max(fresh, 3*d.every)
}

// use takes a value of a device, and the one before; NaN: there was none.
type use func(d *device, v, last float64)

// uses tells what readings are for.
var uses = map[field.ID]use{
	field.CorrectedErrors: countCorrected, field.CorrectedErrorsLife: countCorrected,
	field.SpareRowsLow:      func(d *device, v, _ float64) { d.low = v },
	field.SpareRowsNone:     func(d *device, v, _ float64) { d.values[rules.BanksWithoutSpareRow] = v },
	field.ClockEventReasons: addReasons,

	// Of links.
	field.PerLinkFlitErrors: linkErrors(linkCRC), field.PerLinkDataErrors: linkErrors(linkCRC),
	field.PerLinkReplays: linkErrors(linkOther), field.PerLinkRecoveries: linkErrors(linkRecovery),
	field.NVLinkErrors: linkErrors(linkOther), field.NVLinkRecoveryEvents: linkErrors(linkRecovery), field.NVLinkBER: linkRate,
	// Of all links of a GPU.
	field.NVLinksFlitErrors: linkErrors(linkCRC), field.NVLinksDataErrors: linkErrors(linkCRC),
	field.NVLinksReplays: linkErrors(linkOther), field.NVLinksRecoveries: linkErrors(linkRecovery),
	field.NVLinks5Errors: linkErrors(linkOther), field.NVLinks5EffectiveErrors: linkErrors(linkOther),
	field.NVLinks5Recoveries: linkErrors(linkRecovery), field.NVLinks5EffectiveBER: linkRate,

	field.SMClock: meanOf(meanClock), field.PowerUsage: meanOf(meanPower), field.GPUTemperature: meanOf(meanTemperature),
	field.GPUUtilization: meanOf(meanBusy), field.EngineActive: meanOf(meanEngine), field.SMActive: meanOf(meanSM), field.TensorActive: meanOf(meanTensor),
}

// linkKindsRead are the values of label kind that count: other errors are corrected, or of the
// other end.
var linkKindsRead = []string{"", "malformed_packet", "buffer_overrun", "receive", "integrity", "effective"}

// countCorrected counts by how much a counter has grown. One that went back was reset, as by a
// driver that was loaded again.
func countCorrected(d *device, v, last float64) {
	d.corrected.add(d.sampled, v-last)
	d.bucket.add(v-last, d.sampled)
}

func linkErrors(kind int) use {
	return func(d *device, v, last float64) {
		d.links.known = true
		d.links.of[kind].add(d.sampled, v-last)
	}
}

func linkRate(d *device, v, _ float64) { d.links.known, d.links.ber = true, v }

func meanOf(of int) use {
	return func(d *device, v, _ float64) { d.means.add(of, v, d.sampled, d.since) }
}

// throttling are the reasons that are shown: those that are faults if they last, and the
// power limit and the clocks of a group, at which a busy GPU may always run.
const throttling = rules.ThrottlingReasons | 1<<2 | 1<<4

// addReasons adds the time that a row stands for to that of its clock event reasons.
func addReasons(d *device, v, _ float64) {
	if v >= 1<<32 {
		return
	}
	bits, seconds := uint64(v), time.Duration(d.since).Seconds()
	for i := range d.throttled {
		if bits&throttling>>i&1 == 1 {
			d.throttled[i].add(d.sampled, seconds)
		}
	}
	if bits&rules.ThrottlingReasons == 0 {
		seconds = 0
	}
	d.slowed.add(d.sampled, seconds)
}

// derive brings the readings that follow from the device's own rows up to date.
func (d *device) derive(now int64) {
	for i := range d.throttled {
		d.throttled[i].advance(now)
	}
	if d.corrected.used() {
		d.corrected.advance(now)
		d.bucket.add(0, now)
		d.values[rules.CorrectedErrorLevel] = d.bucket.level
	}
	if d.slowed.used() {
		d.slowed.advance(now)
		d.values[rules.ThrottledTime] = d.slowed.total
	}
	if worst := d.links.worst; worst != nil {
		d.values[rules.LinkBudgetUsed] = worst.links.share
	}
}

// describe says in words what a derived reading of the device comes from.
func (d *device) describe(of rules.Derived) string {
	switch worst := d.links.worst; {
	case of == rules.CorrectedErrorLevel:
		return fmt.Sprintf("%.0f corrected memory errors within the last hour", d.corrected.total)
	case of == rules.BanksWithoutSpareRow:
		return fmt.Sprintf("%.0f memory banks without a spare row", d.values[of])
	case of == rules.LinkBudgetUsed && worst != nil:
		return fmt.Sprintf("link %s: %.2g times the budget of an hour for %s", worst.linkName(), worst.links.share, linkNames[worst.links.kind])
	case of == rules.ThrottledTime:
		return fmt.Sprintf("clocks were held down for %.0f s of the last hour", d.slowed.total)
	case of == rules.ClockLag:
		return fmt.Sprintf("the clock is %.0f %% below the median of GPUs with the same work", 100*d.values[of])
	}
	return ""
}

// hour sums what happened within the last hour, in steps of five minutes.
type hour struct {
	slots [12]float64
	last  int64 // number of the newest one; 0: nothing was added, not even 0
	total float64
}

const hourStep = int64(5 * time.Minute)

func (h *hour) used() bool { return h.last > 0 }

// add adds a value above 0; others count as 0.
func (h *hour) add(at int64, v float64) {
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
		*h = hour{last: slot}
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

// bucket is a leaky bucket of corrected errors: rules.CorrectedErrorsPerDay leak in a day.
type bucket struct {
	level float64
	at    int64
}

// bucketSize is a little above the level at which the bucket counts as full: it leaks until it is judged.
const bucketSize = rules.CorrectedErrorsPerDay + 2

func (b *bucket) add(by float64, at int64) {
	if at > b.at {
		b.level = max(0, b.level-float64(at-b.at)*rules.CorrectedErrorsPerDay/float64(24*time.Hour))
	}
	if at > b.at || b.at-at > int64(10*time.Minute) { // else it is a row of before the last judgement
		b.at = at
	}
	if by > 0 { // not NaN
		b.level = min(b.level+by, bucketSize)
	}
}

// Kinds of errors of links.
const (
	linkCRC = iota
	linkOther
	linkRecovery
	linkKinds
	linkBER = linkKinds // not counted
)

var (
	linkBudgets = [linkKinds]float64{rules.LinkCRCErrorsPerHour, rules.LinkErrorsPerHour, rules.LinkRecoveriesPerHour} // of an hour
	linkNames   = [linkKinds + 1]string{"CRC errors", "replays and other errors", "recoveries", "bit error rate"}
)

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
