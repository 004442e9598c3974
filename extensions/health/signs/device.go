package signs

import (
	"cmp"
	"fmt"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// device holds the data of a device across all sessions that sample it.
type device struct {
	collector.Device
	gpu     *device // parent GPU or switch, or nil
	divided bool    // it has instances
	sampled int64   // timestamp of the newest row
	since   int64   // duration that this row covers, ns
	every   int64   // shortest interval of its readings, ns

	last   map[cell]*float64 // last values; NaN: not read yet
	values [field.DerivedReadings]float64

	links  links                // errors of this link, or of all links of a GPU
	slowed [len(slowdowns)]hour // time slowed, by cause
	means  means
	group  string // group of devices to compare with, or ""
}

// cell names a reading of a device.
type cell struct {
	field  field.ID
	labels string
}

// fresh reports whether the device was read recently.
func (d *device) fresh(now int64) bool {
	return d.sampled > 0 && now-d.sampled <= max(fresh, 3*d.every)
}

// use processes a value and its predecessor, which is NaN for the first value.
type use func(d *device, v, last float64)

// uses maps readings to their use.
var uses = map[field.ID]use{
	field.ClockEventReasons: addReasons,

	// Readings of links.
	field.PerLinkFlitErrors: linkErrors(linkCRC), field.PerLinkDataErrors: linkErrors(linkCRC),
	field.PerLinkReplays: linkErrors(linkOther), field.PerLinkRecoveries: linkErrors(linkRecovery),
	field.NVLinkErrors: linkErrors(linkOther), field.NVLinkRecoveryEvents: linkErrors(linkRecovery), field.NVLinkBER: linkRate,
	// Totals over all links of a GPU: they have the budget of one, since one link may have made them all.
	field.NVLinksFlitErrors: linkErrors(linkCRC), field.NVLinksDataErrors: linkErrors(linkCRC),
	field.NVLinksReplays: linkErrors(linkOther), field.NVLinksRecoveries: linkErrors(linkRecovery),
	field.NVLinks5Errors: linkErrors(linkOther), field.NVLinks5EffectiveErrors: linkErrors(linkOther),
	field.NVLinks5Recoveries: linkErrors(linkRecovery), field.NVLinks5EffectiveBER: linkRate,

	field.SMClock: meanOf(meanClock), field.GPUUtilization: meanOf(meanBusy), field.EngineActive: meanOf(meanEngine),
}

// linkKindsRead lists the counted values of the label kind. Errors of other kinds are corrected, or belong to the other end.
var linkKindsRead = []string{"", "malformed_packet", "buffer_overrun", "receive", "integrity", "effective"}

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

// slowdowns has the clock event reasons of each cause. Heat and the power brake also set hw_slowdown, so the first cause counts.
var slowdowns = [...]struct {
	reasons uint64
	cause   string
}{{1<<5 | 1<<6, "heat"}, {1 << 7, "the power brake"}, {field.ThrottlingReasons, "the hardware"}}

// addReasons adds the duration that a row covers if a fault or heat holds the clocks down meanwhile.
func addReasons(d *device, v, _ float64) {
	if v >= 1<<32 {
		return
	}
	for i, s := range slowdowns {
		seconds := 0.0
		if uint64(v)&s.reasons != 0 {
			seconds, v = time.Duration(d.since).Seconds(), 0
		}
		d.slowed[i].add(d.sampled, seconds)
	}
}

// derive computes the readings that depend only on the device's own rows.
func (d *device) derive(now int64) {
	if d.slowed[0] != (hour{}) { // its clock event reasons are read
		d.values[field.ThrottledTime] = 0
		for i := range d.slowed {
			d.values[field.ThrottledTime] += d.slowed[i].total(now)
		}
	}
	if worst := d.links.worst; worst != nil {
		d.values[field.LinkBudgetUsed] = worst.links.share
	}
}

// describe explains a derived reading of the device.
func (d *device) describe(of field.Derived) string {
	switch worst := d.links.worst; {
	case of == field.LinkBudgetUsed && worst != nil:
		return fmt.Sprintf("link %s: %.2g times the budget of an hour for %s", cmp.Or(worst.Label("nvlink"), "all"), worst.links.share, linkNames[worst.links.kind])
	case of == field.ThrottledTime:
		longest := 0
		for i := range slowdowns {
			if d.slowed[i].total(d.sampled) > d.slowed[longest].total(d.sampled) {
				longest = i
			}
		}
		return fmt.Sprintf("clocks were held down for %.0f s of the last hour, longest by %s", d.values[of], slowdowns[longest].cause)
	case of == field.ClockLag:
		return fmt.Sprintf("the clock is %.0f %% below the median of GPUs with the same work", 100*d.values[of])
	}
	return ""
}

// hour sums events over the last hour, in steps of five minutes.
type hour [hourSteps]struct {
	step int64 // number since 1970
	sum  float64
}

const (
	hourSteps = 12
	hourStep  = int64(time.Hour) / hourSteps
)

// add adds a positive value; other values count as 0.
func (h *hour) add(at int64, v float64) {
	step := at / hourStep
	s := &h[step%hourSteps]
	if s.step != step {
		s.step, s.sum = step, 0
	}
	if v > 0 { // false for NaN
		s.sum += v
	}
}

// total returns the sum. Steps of the next hour count too, because the clock may have been set back.
func (h *hour) total(now int64) (sum float64) {
	for _, s := range h {
		if age := now/hourStep - s.step; age > -hourSteps && age < hourSteps {
			sum += s.sum
		}
	}
	return sum
}

// Kinds of link errors.
const (
	linkCRC = iota
	linkOther
	linkRecovery
	linkKinds
	linkBER = linkKinds // not counted
)

var (
	linkBudgets = [linkKinds]float64{field.LinkCRCErrorsPerHour, field.LinkErrorsPerHour, field.LinkRecoveriesPerHour} // of an hour
	linkNames   = [linkKinds + 1]string{"CRC errors", "replays and other errors", "recoveries", "bit error rate"}
)

// links counts the errors of a link, or of all links of a GPU, in the last hour.
type links struct {
	of    [linkKinds]hour
	ber   float64 // effective BER; 0: none or unknown
	known bool
	share float64 // used part of the error budget, for the worst kind
	kind  int
	worst *device // the device or its link with the largest share; nil: unknown
}

// sum updates the share.
func (l *links) sum(now int64) {
	l.share, l.kind = l.ber/field.EffectiveBER, linkBER
	for k := range l.of {
		if share := l.of[k].total(now) / linkBudgets[k]; share > l.share {
			l.share, l.kind = share, k
		}
	}
}
