package recorder

import (
	"cmp"
	"errors"
	"iter"
	"maps"
	"math"
	"slices"
	"time"

	"warpgauge/extensions/live/api"
	"warpgauge/extensions/live/apiv1"
	"warpgauge/extensions/live/history"
	"warpgauge/pkg/accumulate"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/events"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/field"
	"warpgauge/pkg/lists"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

// Judge returns the verdicts on a View's devices at a time.
type Judge func(v *view.View, status []session.CollectorStatus, at time.Time) *events.Snapshot

// NewReplay returns a metrics page and an API for one time of a recording. The history holds the whole recording. The rings
// are filled up to that time, as by a session.
func NewReplay(r *Recording, version string, judge Judge, at time.Time) (*exposition.Renderer, *api.API, error) {
	now, users := func() time.Time { return at }, usersOf(&r.Node)
	board, shown := new(view.Board), &view.View{Version: 1}
	tracks, err := tracksOf(r)
	if err != nil {
		return nil, nil, err
	}
	for _, t := range tracks {
		shown.Sources = append(shown.Sources, t.source)
	}
	board.Store(shown)
	page := exposition.New(board, exposition.Options{Hostname: r.Hostname, Store: accumulate.New(accumulate.Options{}), Owners: users, Now: now})
	for fed := true; fed; page.Sync(at) {
		fed = false
		for _, t := range tracks {
			fed = t.feed(at.UnixMilli()) || fed
		}
	}
	status := statusOf(tracks, users, at)
	verdicts := judge(shown, status, at)
	log := api.NewLog(now)
	for _, e := range r.Events {
		log.Add(e)
	}
	return page, api.New(api.Options{
		Hostname: r.Hostname, Version: version, Recording: r.Name, Lists: r, Events: log, Now: now,
		View: board.Load, Status: func() []session.CollectorStatus { return status }, Health: func() *events.Snapshot { return verdicts },
		Users:     func(d *collector.Device) []apiv1.User { return users[d.ID].Users },
		Processes: func(d *collector.Device) []apiv1.Process { return users[d.ID].Processes },
		History:   r.history(), HistoryAge: r.Until.Sub(r.From),
	}), nil
}

// Status implements api.Lists with the fields of all lists: a reload adds a list, and a recording without devices has
// none.
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

// history returns a history with the whole recording.
func (r *Recording) history() *history.History {
	h := history.New(history.Options{Rows: rows.New(new(view.Board), nil), MaxBytes: math.MaxInt64})
	for i, s := range r.Series {
		h.Load(s, each(r.Samples[i]))
	}
	return h
}

func each(samples []Sample) iter.Seq2[int64, float64] {
	return func(yield func(int64, float64) bool) {
		for _, s := range samples {
			if !yield(s.Time, s.Value) {
				return
			}
		}
	}
}

// track holds the rows of a device that are not in its ring yet: one per sample time. An event is in the first row after
// it.
type track struct {
	source  *view.Source
	times   []int64 // ms
	samples [][]Sample
	last    time.Time // time of the newest row in the ring
}

const (
	maxCells = 32 << 20 // rows in a ring, so at most that many are fed between two reads
	feedRows = 1024     // rows in a ring, and so fed between two readings of it
)

// tracksOf returns the tracks of all devices. It omits samples from a driver's buffer, which only the history has.
func tracksOf(r *Recording) (out []*track, err error) {
	v, series := r.view(r.Fields)
	cells := 0
	for i, s := range v.Sources {
		s.Ring = ring.Make(feedRows, 1, len(s.Columns))
		t := &track{source: s}
		times := make(map[int64]bool)
		for c, at := range series[i] {
			t.samples = append(t.samples, r.Samples[at])
			if d, known := field.ByID(s.Columns[c].Field); known && d.Event {
				continue
			}
			for _, x := range r.Samples[at] {
				times[x.Time] = true
			}
		}
		t.times = slices.Sorted(maps.Keys(times))
		if cells += len(t.times) * len(t.samples); cells > maxCells {
			return nil, errors.New("replay: the devices of the recording have too many samples at different times")
		}
		out = append(out, t)
	}
	return out, nil
}

// feed appends the rows up to a time to the ring, at most one ringful. It reports whether it appended any.
func (t *track) feed(until int64) (fed bool) {
	cells := make([]float64, len(t.samples))
	for n := 0; n < feedRows && len(t.times) > 0 && t.times[0] <= until; n++ {
		at := t.times[0]
		for c, s := range t.samples {
			cells[c] = math.NaN()
			for ; len(s) > 0 && s[0].Time <= at; s = s[1:] {
				cells[c] = s[0].Value
			}
			t.samples[c] = s
		}
		t.last, t.times, fed = time.UnixMilli(at), t.times[1:], true
		t.source.Ring.Append(t.last.UnixNano(), []int64{t.last.UnixNano()}, cells)
	}
	return fed
}

// silentAfter is the number of intervals without a sample after which a device counts as silent; silentLeast is the minimum time.
const (
	silentAfter = 3
	silentLeast = 5 * time.Second
)

// statusOf returns the device states at the shown time: up if there are recent samples, otherwise the state at the end of
// the recording.
func statusOf(tracks []*track, users recordedUsers, now time.Time) (out []session.CollectorStatus) {
	for _, t := range tracks {
		d := session.DeviceStatus{Device: t.source.Devices[0], LastSample: t.last, State: session.Stalled, Cause: session.CauseError, Reason: "the recording has no samples of this time"}
		if now.Sub(t.last) <= max(silentAfter*t.source.Interval, silentLeast) {
			d.State, d.Cause, d.Reason = session.Up, session.CauseNone, ""
		} else if was := users[d.Device.ID]; was.State == session.Lost.String() {
			d.State, d.Cause, d.Reason = session.Lost, session.CauseLost, was.Reason
		}
		at, known := slices.BinarySearchFunc(out, t.source.Collector, func(c session.CollectorStatus, name string) int { return cmp.Compare(c.Name, name) })
		if !known {
			out = slices.Insert(out, at, session.CollectorStatus{Name: t.source.Collector, Up: true})
		}
		out[at].Devices = append(out[at].Devices, d)
	}
	return out
}

// recordedUsers holds the recorded users of devices by device ID.
type recordedUsers map[string]apiv1.Device

func usersOf(node *apiv1.Devices) recordedUsers {
	u := make(recordedUsers)
	for _, d := range node.Devices {
		u[d.ID] = d
	}
	return u
}

var _ exposition.Owners = recordedUsers(nil)

func (recordedUsers) Version() uint64                        { return 1 }
func (recordedUsers) Split(*collector.Device, field.ID) bool { return false }
func (recordedUsers) Shares() *view.Shares                   { return nil }

// Owners returns the labels that distinguish users. Pod labels are not recorded.
func (u recordedUsers) Owners(d *collector.Device) (out []view.Owner) {
	for _, user := range u[d.ID].Users {
		var o view.Owner
		for _, l := range []collector.Label{
			{Name: "container", Value: user.Container}, {Name: "hpc_job", Value: user.Job}, {Name: "namespace", Value: user.Namespace}, {Name: "pod", Value: user.Pod},
		} {
			if l.Value != "" {
				o.Labels = append(o.Labels, l)
			}
		}
		out = append(out, o)
	}
	return out
}
