package recorder

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/events"
	"warpgauge/pkg/field"
	"warpgauge/pkg/lists"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

// Replay is the node of a recording as of one time. It implements rows.History with the whole recording.
type Replay struct {
	Board view.Board // sources with one row: each reading's newest value

	r      *Recording
	status []session.CollectorStatus
}

// NewReplay returns a Replay.
func NewReplay(r *Recording, at time.Time) *Replay {
	p := &Replay{r: r}
	v, series := r.view(r.Fields)
	for i, s := range v.Sources {
		last, cells := int64(math.MinInt64), make([]float64, len(s.Columns))
		newest := make([]Sample, len(s.Columns))
		for c, number := range series[i] {
			all := r.Samples[number]
			n, _ := slices.BinarySearchFunc(all, at.UnixMilli()+1, func(s Sample, t int64) int { return cmp.Compare(s.Time, t) })
			if newest[c].Time = math.MinInt64; n > 0 {
				newest[c] = all[n-1]
			}
			if !isEvent(&s.Columns[c]) {
				last = max(last, newest[c].Time)
			}
		}
		for c, x := range newest {
			// A row has all readings of a device that are not blank, and the events since the row before.
			if cells[c] = math.NaN(); x.Time == last || isEvent(&s.Columns[c]) && x.Time > last-s.Interval.Milliseconds() {
				cells[c] = x.Value
			}
		}
		sampled := time.Time{}
		if s.Ring = ring.Make(1, 1, len(s.Columns)); last != math.MinInt64 {
			sampled = time.UnixMilli(last)
			s.Ring.Append(sampled.UnixNano(), []int64{sampled.UnixNano()}, cells)
		}
		p.addStatus(s, sampled, at)
	}
	p.Board.Store(v)
	return p
}

func isEvent(c *collector.Column) bool {
	d, known := field.ByID(c.Field)
	return known && d.Event
}

// silentAfter is the number of intervals without a sample after which a device counts as silent; minSilence is the minimum time.
const (
	silentAfter = 3
	minSilence  = 5 * time.Second
)

// addStatus adds the state of a source's device: up if it has recent samples, otherwise its state at the end of the recording.
func (p *Replay) addStatus(s *view.Source, sampled, now time.Time) {
	d := session.DeviceStatus{Device: s.Devices[0], LastSample: sampled, State: session.Stalled, Cause: session.CauseError, Reason: "the recording has no samples of this time"}
	if now.Sub(sampled) <= max(silentAfter*s.Interval, minSilence) {
		d.State, d.Cause, d.Reason = session.Up, session.CauseNone, ""
	} else if was := p.device(d.Device.ID); was.State == session.Lost.String() {
		d.State, d.Cause, d.Reason = session.Lost, session.CauseLost, was.Reason
	}
	at, known := slices.BinarySearchFunc(p.status, s.Collector, func(c session.CollectorStatus, name string) int { return cmp.Compare(c.Name, name) })
	if !known {
		p.status = slices.Insert(p.status, at, session.CollectorStatus{Name: s.Collector, Up: true})
	}
	p.status[at].Devices = append(p.status[at].Devices, d)
}

// device returns the recorded device; a zero one if there is none.
func (p *Replay) device(id string) *Device {
	if i := slices.IndexFunc(p.r.Devices, func(d Device) bool { return d.Device.ID == id }); i >= 0 {
		return &p.r.Devices[i]
	}
	return &Device{}
}

// Status returns the states of the devices.
func (p *Replay) Status() []session.CollectorStatus { return p.status }

// Interval returns the interval in the list: the recording has no others.
func (p *Replay) Interval(r field.Reading) time.Duration { return r.Interval }

// Vendor returns nil: a recording does not name the vendor.
func (p *Replay) Vendor(string) *field.Vendor { return nil }

// Users returns the recorded users of a device.
func (p *Replay) Users(d *collector.Device) []User { return p.device(d.ID).Users }

// Load returns the recorded verdicts.
func (p *Replay) Load() *events.Snapshot { return &events.Snapshot{Verdicts: p.r.Verdicts} }

// Status returns the fields of all lists: a reload adds a list, and a recording without devices has none.
func (r *Recording) Status() lists.Status {
	var all field.List
	for _, list := range r.Fields {
		for _, f := range list.Fields {
			if !slices.ContainsFunc(all.Fields, func(g field.Field) bool { return g.Name == f.Name }) {
				all.Fields = append(all.Fields, f)
			}
		}
	}
	return lists.Status{InService: lists.List{Origin: "the recording", Fields: all}, Applied: r.From}
}

// Series implements rows.History.
func (p *Replay) Series(device string, reading field.ID) (out []rows.Series) {
	for _, s := range p.r.Series {
		if (device == "" || s.Device == device) && (reading == 0 || s.Field == reading) {
			out = append(out, s)
		}
	}
	return out
}

// Samples implements rows.History.
func (p *Replay) Samples(s rows.Series, from, until int64) iter.Seq2[int64, float64] {
	i := slices.IndexFunc(p.r.Series, func(x rows.Series) bool {
		return x.Device == s.Device && x.Field == s.Field && x.Buffered == s.Buffered && slices.Equal(x.Labels, s.Labels)
	})
	return func(yield func(int64, float64) bool) {
		if i < 0 {
			return
		}
		for _, x := range p.r.Samples[i] {
			if x.Time >= from && (x.Time >= until || !yield(x.Time, x.Value)) {
				return
			}
		}
	}
}
