package signs

import (
	"fmt"
	"math"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/view"
)

// follow reads one ring of the View.
type follow struct {
	source  *view.Source
	rows    *ring.Follower
	devices []deviceTap // as Source.Devices
	taps    []tap
}

type deviceTap struct {
	*device       // nil if another source of the View supplies the device
	news    bool  // the device was sampled in the row in hand
	since   int64 // the time that the row stands for, ns
}

// tap leads from a cell to what is computed from it.
type tap struct {
	device, cell int
	use          use
	counter      *counter
	of           int // a linkKind, or a mean
}

const (
	// maxFill is the longest time between two samples for which the second one stands, or three
	// intervals if that is more.
	maxFill = time.Second
	// maxOverlap bounds how long the rings of two sources can hold the same instants. A time
	// further back is a clock that was set back.
	maxOverlap = 10 * time.Minute
)

// use is what a cell is for.
type use uint8

const (
	useNothing use = iota
	useCorrected
	useBanksLow
	useBanksNone
	useLinkErrors
	useLinkBER
	useReasons
	useMean
)

// Ids of readings by the catalogue's numbers.
const (
	correctedVolatile  field.ID = 310
	correctedAggregate field.ID = 312
	effectiveBER       field.ID = 1218
)

// uses is what readings are for. Of counters of one thing a device's first one in the order of
// preference counts.
var uses = map[field.ID]struct {
	use
	of int
}{
	correctedVolatile: {useCorrected, 0}, correctedAggregate: {useCorrected, 1},
	388: {useBanksLow, 0}, 389: {useBanksNone, 0},
	field.ClockEventReasons: {useReasons, 0},

	// Of links.
	1525: {useLinkErrors, int(linkCRC)}, 1526: {useLinkErrors, int(linkCRC)},
	1527: {useLinkErrors, int(linkOther)}, 1528: {useLinkErrors, int(linkRecovery)},
	field.NVLinkErrors: {useLinkErrors, int(linkOther)}, field.NVLinkRecoveryEvents: {useLinkErrors, int(linkRecovery)},
	field.NVLinkBER: {useLinkBER, 0},
	// Of all links of a GPU.
	409: {useLinkErrors, int(linkCRC)}, 419: {useLinkErrors, int(linkCRC)},
	429: {useLinkErrors, int(linkOther)}, 439: {useLinkErrors, int(linkRecovery)},
	1206: {useLinkErrors, int(linkOther)}, 1213: {useLinkErrors, int(linkRecovery)}, 1219: {useLinkErrors, int(linkOther)},
	effectiveBER: {useLinkBER, 0},

	100: {useMean, meanClock}, 155: {useMean, meanPower}, 150: {useMean, meanTemperature},
	203: {useMean, meanBusy}, 1001: {useMean, meanEngine}, 1002: {useMean, meanSM}, 1004: {useMean, meanTensor},
}

// linkErrorKinds are the kinds of field.NVLinkErrors that count: the others are corrected, or
// of the other end.
var linkErrorKinds = map[string]bool{"malformed_packet": true, "buffer_overrun": true, "receive": true, "integrity": true, "effective": true}

func (s *Signs) newFollow(src *view.Source, claimed map[string]bool, now int64) *follow {
	f := &follow{source: src, rows: src.Ring.Follow(), devices: make([]deviceTap, len(src.Devices))}
	for i := range src.Devices {
		id := src.Devices[i].ID
		if claimed[id] {
			continue
		}
		claimed[id] = true
		d := s.devices[id]
		if d == nil {
			d = &device{counters: make(map[counterKey]*counter), banks: banks{-1, -1}, deviation: noDeviation}
			s.devices[id] = d
		}
		d.Device, d.bound, d.every = src.Devices[i], now, int64(src.IntervalOf(i))
		f.devices[i].device = d
		s.present = append(s.present, d)
	}
	for i := range src.Columns {
		c := &src.Columns[i]
		if c.Device >= 0 && c.Device < len(src.Devices) && f.devices[c.Device].device != nil && c.Buffer == 0 {
			f.tap(c, i)
		}
	}
	return f
}

// tap connects a column with what is computed from it.
func (f *follow) tap(c *collector.Column, cell int) {
	u, d := uses[c.Field], f.devices[c.Device].device
	t := tap{device: c.Device, cell: cell, use: u.use, of: u.of}
	switch u.use {
	case useNothing:
		return
	case useCorrected:
		if u.of == 1 && f.has(c.Device, correctedVolatile) {
			return
		}
	case useLinkErrors, useLinkBER:
		if kind := labelOf(c, "kind"); c.Field == field.NVLinkErrors && !linkErrorKinds[kind] || c.Field == field.NVLinkBER && kind != "effective" {
			return
		}
	}
	if u.use == useCorrected || u.use == useLinkErrors {
		k := counterKey{c.Field, fmt.Sprint(c.Labels)}
		if d.counters[k] == nil {
			d.counters[k] = &counter{value: math.NaN()}
		}
		t.counter = d.counters[k]
	}
	f.taps = append(f.taps, t)
}

func (f *follow) has(device int, id field.ID) bool {
	for i := range f.source.Columns {
		if c := &f.source.Columns[i]; c.Device == device && c.Field == id {
			return true
		}
	}
	return false
}

func labelOf(c *collector.Column, name string) string {
	for _, l := range c.Labels {
		if l.Name == name {
			return l.Value
		}
	}
	return ""
}

// take takes a row. Of a ring that overlaps with another one of the device, rows that are
// older than what was taken do not count.
func (f *follow) take(row *ring.Row) {
	for i := range f.devices {
		d := &f.devices[i]
		if d.device == nil {
			continue
		}
		stamp := row.Stamps[i]
		d.news = stamp > d.sampled || stamp > 0 && d.sampled-stamp > int64(maxOverlap)
		if d.news {
			d.since = stamp - d.sampled
			if d.since <= 0 || d.since > max(int64(maxFill), 3*int64(f.source.Interval)) {
				d.since = int64(f.source.Interval)
			}
			d.sampled = stamp
		}
	}
	for i := range f.taps {
		t := &f.taps[i]
		if d := &f.devices[t.device]; d.news {
			t.take(d, row.Cells[t.cell])
		}
	}
}

// take takes a value of the device.
func (t *tap) take(tap *deviceTap, v float64) {
	d, at := tap.device, tap.sampled
	if !(v >= 0) {
		if t.use == useBanksNone {
			d.banks.none = -1
		}
		return // blank
	}
	switch t.use {
	case useCorrected:
		by := t.counter.grown(v)
		d.corrected.add(at, by)
		d.bucket.add(by, at)
	case useBanksLow:
		d.banks.low = v
	case useBanksNone:
		d.banks.none = v
	case useLinkErrors:
		d.links.known = true
		d.links.of[t.of].add(at, t.counter.grown(v))
	case useLinkBER:
		d.links.known, d.links.ber = true, v
	case useReasons:
		d.mask(v, at, tap.since)
	case useMean:
		d.means.take(t.of, v, at, tap.since)
	}
}
