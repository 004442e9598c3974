package recorder

import (
	"context"
	"errors"
	"iter"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"warpgauge/extensions/live/api"
	"warpgauge/extensions/live/apiv1"
	"warpgauge/extensions/live/history"
	"warpgauge/pkg/accumulate"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/field"
	"warpgauge/pkg/lists"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/selfmetrics"
	"warpgauge/pkg/session"
	"warpgauge/pkg/verdict"
	"warpgauge/pkg/view"
)

// Judge returns the verdicts on the devices of a View at a time.
type Judge func(v *view.View, status []session.CollectorStatus, at time.Time) *verdict.Snapshot

// Replay serves page, API and metrics of a recording, at a time that advances from where Seek has put it. It feeds the
// recording into rings, as a session would; their readers get the recorded time in place of now. Run does the work; the
// other methods can be called by any goroutine.
type Replay struct {
	recording *Recording
	tracks    []track
	users     recordedUsers
	judge     Judge
	self      *selfmetrics.Page
	api       *api.API

	showing atomic.Pointer[moment]
}

// track is the rows of a device.
type track struct {
	source *view.Source // without a ring
	series []int        // of the recording, by column
	times  []int64      // ms
	cells  [][]float64
}

// moment is the part of the recording since the last seek.
type moment struct {
	began    time.Time     // of our time
	at       time.Duration // from the beginning of the recording to the time that was shown then
	view     *view.View
	renderer *exposition.Renderer

	next []int // row of each track; of the goroutine of Run, and of Seek before that
}

// NewReplay returns a Replay that shows a recording from a time after its beginning on.
func NewReplay(r *Recording, version string, judge Judge, at time.Duration) (*Replay, error) {
	tracks, err := tracksOf(r)
	if err != nil {
		return nil, err
	}
	p := &Replay{recording: r, tracks: tracks, users: usersOf(&r.Node), judge: judge}
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "warpgauge_replay_time_seconds", Help: "This page is of a recording: the time that it shows.",
		ConstLabels: prometheus.Labels{"recording": r.Name, "cause": r.Cause},
	}, func() float64 { return float64(p.now().UnixMilli()) / 1000 }))
	p.self = selfmetrics.New(registry, selfmetrics.Options{Logger: zap.NewNop()})

	log := api.NewLog(p.now)
	for _, e := range r.Events {
		log.Add(e)
	}
	p.api = api.New(api.Options{
		Hostname: r.Hostname, Version: version, Recording: r.Name,
		View: func() *view.View { return p.showing.Load().view }, Status: p.status,
		Health:    func() *verdict.Snapshot { return p.judge(p.showing.Load().view, p.status(), p.now()) },
		Lists:     r,
		Users:     func(d *collector.Device) []apiv1.User { return p.users[d.ID].Users },
		Processes: func(d *collector.Device) []apiv1.Process { return p.users[d.ID].Processes },
		Events:    log, History: r.history(), HistoryAge: r.Until.Sub(r.From), Now: p.now,
	})
	p.seek(at)
	return p, nil
}

// Status implements api.Lists, with the fields of all lists: there is another one after a reload, and none if there was no
// device.
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

// history returns the history that the recording is.
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

// now is the time that is shown.
func (p *Replay) now() time.Time {
	m := p.showing.Load()
	if m == nil {
		return p.recording.From
	}
	return p.recording.From.Add(min(m.shown(), p.recording.Until.Sub(p.recording.From)))
}

// shown is how far the time is from the beginning of the recording, if that had no end.
func (m *moment) shown() time.Duration { return m.at + time.Since(m.began) }

// Negotiated returns the page of the time that is shown.
func (p *Replay) Negotiated(accept, acceptEncoding string) (page []byte, contentType string, gzip bool) {
	return p.showing.Load().renderer.Negotiated(accept, acceptEncoding)
}

// API returns what answers /api/v1/.
func (p *Replay) API() *api.API { return p.api }

// seek shows the recording from a time after its beginning on. Rows before that are
// accumulated.
func (p *Replay) seek(to time.Duration) {
	m := &moment{at: to, view: &view.View{Version: 1}, next: make([]int, len(p.tracks))}
	for i := range p.tracks {
		s := *p.tracks[i].source
		s.Ring = ring.Make(feedRows, 1, len(s.Columns))
		m.view.Sources = append(m.view.Sources, &s)
	}
	board := new(view.Board)
	board.Store(m.view)
	m.renderer = exposition.New(board, exposition.Options{
		Hostname: p.recording.Hostname, Store: accumulate.New(accumulate.Options{}), Owners: p.users, Self: p.self, Now: p.now,
	})
	for shown := p.recording.From.Add(to); m.feed(p.tracks, shown); {
		m.renderer.Sync(shown)
	}
	m.began = time.Now()
	p.showing.Store(m)
}

// Of the rows that have become due, those are fed so often; a replay that has ended begins
// again after a pause.
const (
	feedEvery = 50 * time.Millisecond
	replayEnd = 2 * time.Second
)

// Run feeds rows as time advances.
func (p *Replay) Run(ctx context.Context) error {
	var own sync.WaitGroup
	defer own.Wait()
	own.Go(func() { _ = p.self.Run(ctx) }) // there is no error
	tick := time.NewTicker(feedEvery)
	defer tick.Stop()
	synced := time.Now()
	span := p.recording.Until.Sub(p.recording.From)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		m, now := p.showing.Load(), p.now()
		m.feed(p.tracks, now)
		if time.Since(synced) >= time.Second {
			synced = time.Now()
			m.renderer.Sync(now)
		}
		if m.shown() > span+replayEnd {
			p.seek(0)
		}
	}
}

// feedRows is how many rows are in a ring, and so fed between two readings of it.
const feedRows = 1024

// feed appends the rows up to a time to the rings, not more than they hold. It reports
// whether there were some.
func (m *moment) feed(tracks []track, until time.Time) (fed bool) {
	for i := range tracks {
		t := &tracks[i]
		for n := 0; n < feedRows && m.next[i] < len(t.times) && t.times[m.next[i]] <= until.UnixMilli(); n++ {
			at := t.times[m.next[i]] * int64(time.Millisecond)
			m.view.Sources[i].Ring.Append(at, []int64{at}, t.cells[m.next[i]])
			m.next[i]++
			fed = true
		}
	}
	return fed
}

// maxCells bounds what a replay keeps in memory.
const maxCells = 32 << 20

// tracksOf makes the rows of each device: one for each time at which it was sampled. Events are in the first row after
// them. Samples of a driver's buffer are in the history only.
func tracksOf(r *Recording) (out []track, err error) {
	v, series := r.view(r.Fields)
	cells := 0
	for i, s := range v.Sources {
		t := track{source: s, series: series[i]}
		times := make(map[int64]bool)
		for c, at := range t.series {
			if !isEvent(s.Columns[c].Field) {
				for _, x := range r.Samples[at] {
					times[x.Time] = true
				}
			}
		}
		t.times = slices.Sorted(maps.Keys(times))
		if cells += len(t.times) * len(t.series); cells > maxCells {
			return nil, errors.New("replay: the devices of the recording have too many samples at different times")
		}
		t.fill(r)
		out = append(out, t)
	}
	return out, nil
}

func (t *track) fill(r *Recording) {
	cells := make([]float64, len(t.times)*len(t.series))
	for i := range cells {
		cells[i] = math.NaN()
	}
	for i := range t.times {
		t.cells = append(t.cells, cells[i*len(t.series):][:len(t.series)])
	}
	for c, at := range t.series {
		row := 0
		for _, s := range r.Samples[at] {
			for row < len(t.times) && t.times[row] < s.Time {
				row++
			}
			if row < len(t.times) {
				t.cells[row][c] = s.Value
			}
		}
	}
}

func isEvent(id field.ID) bool {
	d, known := field.ByID(id)
	return known && d.Event
}

// silentAfter is how many intervals a device can be without a sample, at least silentLeast.
const (
	silentAfter = 3
	silentLeast = 5 * time.Second
)

// status is the state of devices at the time that is shown: up if there were samples just
// before, else as it was when the recording was written.
func (p *Replay) status() []session.CollectorStatus {
	now := p.now()
	byName := make(map[string]*session.CollectorStatus)
	for i := range p.tracks {
		t := &p.tracks[i]
		c := byName[t.source.Collector]
		if c == nil {
			c = &session.CollectorStatus{Name: t.source.Collector, Up: true}
			byName[c.Name] = c
		}
		d := session.DeviceStatus{Device: t.source.Devices[0], State: session.Stalled, Cause: session.CauseError, Reason: "the recording has no samples of this time"}
		if n, _ := slices.BinarySearch(t.times, now.UnixMilli()+1); n > 0 {
			d.LastSample = time.UnixMilli(t.times[n-1])
		}
		if now.Sub(d.LastSample) <= max(silentAfter*t.source.Interval, silentLeast) {
			d.State, d.Cause, d.Reason = session.Up, session.CauseNone, ""
		} else if was := p.users[d.Device.ID]; was.State == session.Lost.String() {
			d.State, d.Cause, d.Reason = session.Lost, session.CauseLost, was.Reason
		}
		c.Devices = append(c.Devices, d)
	}
	var out []session.CollectorStatus
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		out = append(out, *byName[name])
	}
	return out
}

// recordedUsers are the users of devices when a recording was written, by the device's ID.
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

// Owners returns the labels that tell users apart. Labels of pods are not recorded.
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
