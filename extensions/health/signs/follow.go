package signs

import (
	"fmt"
	"math"
	"slices"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/view"
)

// fresh is how old the newest sample of a device may be.
const fresh = time.Minute

// follow leads from the cells of a source to the signs that they decide.
type follow struct {
	source  *view.Source
	devices []deviceTap // as Source.Devices
	taps    []tap
}

type deviceTap struct {
	*device       // nil if another source of the View supplies the device
	news    bool  // it was sampled in the current row
	since   int64 // the time that the row stands for, ns
}

// tap leads from a cell to the sign that it decides.
type tap struct {
	target
	device, cell int
	counter      *float64
}

// target tells which sign uses a reading.
type target struct {
	use use
	of  int // a kind of errors of links, or one of the means
}

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

// targets are by reading. Corrected errors in the life of a GPU are for those that have no
// other reading.
var targets = map[field.ID]target{
	field.CorrectedErrors: {use: useCorrected}, field.CorrectedErrorsLife: {use: useCorrected},
	field.SpareRowsLow: {use: useBanksLow}, field.SpareRowsNone: {use: useBanksNone},
	field.ClockEventReasons: {use: useReasons},

	// Of links.
	field.PerLinkFlitErrors: {useLinkErrors, linkCRC}, field.PerLinkDataErrors: {useLinkErrors, linkCRC},
	field.PerLinkReplays: {useLinkErrors, linkOther}, field.PerLinkRecoveries: {useLinkErrors, linkRecovery},
	field.NVLinkErrors: {useLinkErrors, linkOther}, field.NVLinkRecoveryEvents: {useLinkErrors, linkRecovery}, field.NVLinkBER: {use: useLinkBER},
	// Of all links of a GPU.
	field.NVLinksFlitErrors: {useLinkErrors, linkCRC}, field.NVLinksDataErrors: {useLinkErrors, linkCRC},
	field.NVLinksReplays: {useLinkErrors, linkOther}, field.NVLinksRecoveries: {useLinkErrors, linkRecovery},
	field.NVLinks5Errors: {useLinkErrors, linkOther}, field.NVLinks5EffectiveErrors: {useLinkErrors, linkOther},
	field.NVLinks5Recoveries: {useLinkErrors, linkRecovery}, field.NVLinks5EffectiveBER: {use: useLinkBER},

	field.SMClock: {useMean, meanClock}, field.PowerUsage: {useMean, meanPower}, field.GPUTemperature: {useMean, meanTemperature},
	field.GPUUtilization: {useMean, meanBusy}, field.EngineActive: {useMean, meanEngine}, field.SMActive: {useMean, meanSM}, field.TensorActive: {useMean, meanTensor},
}

// linkKindsRead are the values of label kind that count: other errors are corrected, or of the
// other end.
var linkKindsRead = []string{"", "malformed_packet", "buffer_overrun", "receive", "integrity", "effective"}

// connect connects columns with signs.
func (f *follow) connect() {
	for i := range f.source.Columns {
		c := &f.source.Columns[i]
		t := tap{target: targets[c.Field], device: c.Device, cell: i}
		if t.use == useNothing || c.Buffer > 0 || f.devices[c.Device].device == nil {
			continue
		}
		if c.Field == field.CorrectedErrorsLife && slices.ContainsFunc(f.source.Columns, func(o collector.Column) bool { return o.Device == c.Device && o.Field == field.CorrectedErrors }) {
			continue
		}
		kind := slices.IndexFunc(c.Labels, func(l collector.Label) bool { return l.Name == "kind" })
		if kind >= 0 && !slices.Contains(linkKindsRead, c.Labels[kind].Value) {
			continue
		}
		if t.use == useCorrected || t.use == useLinkErrors {
			counters, k := f.devices[c.Device].counters, counterKey{c.Field, fmt.Sprint(c.Labels)}
			if counters[k] == nil {
				unread := math.NaN()
				counters[k] = &unread
			}
			t.counter = counters[k]
		}
		f.taps = append(f.taps, t)
	}
}

// bindCalls finds the GPU that all calls of the source belong to.
func (f *follow) bindCalls() {
	gpus := 0
	for _, d := range f.source.Devices {
		if d.Level == field.GPU && d.Parent == "" {
			gpus++
		}
	}
	if len(f.devices) > 0 && f.devices[0].device != nil {
		d := f.devices[0].device
		d.calls.bind(f.source.Collector, len(f.source.Columns), gpus == 1 && d.Level == field.GPU)
	}
}

// addRow adds a row.
func (f *follow) addRow(row *rows.Row) {
	for i := range f.devices {
		if d := &f.devices[i]; d.device != nil {
			if d.news = row.Devices[i].Sampled; d.news {
				d.since, d.sampled = int64(row.Devices[i].Millis*float64(time.Millisecond)), row.Stamps[i]
			}
		}
	}
	for i := range f.taps {
		t := &f.taps[i]
		if d := &f.devices[t.device]; d.news {
			t.addValue(d, row.Cells[t.cell])
		}
	}
}

// addValue adds a value of the device.
func (t *tap) addValue(tap *deviceTap, v float64) {
	d, at := tap.device, tap.sampled
	if !(v >= 0 && v <= math.MaxFloat64) {
		return // blank, or of a process gone mad
	}
	switch t.use {
	case useCorrected:
		by := grown(t.counter, v)
		d.corrected.add(at, by)
		d.bucket.add(by, at)
	case useBanksLow:
		d.low = v
	case useBanksNone:
		d.none = v
	case useLinkErrors:
		d.links.known = true
		d.links.of[t.of].add(at, grown(t.counter, v))
	case useLinkBER:
		d.links.known, d.links.ber = true, v
	case useReasons:
		d.mask(v, at, float64(tap.since)/float64(time.Second))
	case useMean:
		d.means.add(t.of, v, at, tap.since)
	}
}
