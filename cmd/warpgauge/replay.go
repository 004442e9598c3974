package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"warpgauge/pkg/exporter"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/urfave/cli/v3"
	"go.uber.org/zap"

	"warpgauge/pkg/lists"

	"warpgauge/extensions/health"
	"warpgauge/extensions/live/api"
	"warpgauge/extensions/live/apiv1"
	"warpgauge/extensions/live/history"
	"warpgauge/extensions/live/page"
	"warpgauge/extensions/live/recorder"
	"warpgauge/pkg/accumulate"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/selfmetrics"
	"warpgauge/pkg/server"
	"warpgauge/pkg/session"
	"warpgauge/pkg/verdict"
	"warpgauge/pkg/view"
)

func replayCommand(a *exporter.Program) *cli.Command {
	return &cli.Command{
		Name:      "replay",
		Usage:     "Serve page, API and /metrics of a recording",
		ArgsUsage: "FILE",
		Description: `FILE is one of the flight recorder's (--recorder-directory, /api/v1/recordings).
The time that is shown begins with the recording, or at --at after that, advances as
time does, and begins again at the end. curl -X POST '…/api/v1/replay?at=45s' sets it.
The history has all of the recording from the start.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "listen", Value: "127.0.0.1:9401", Usage: "Address to serve on."},
			&cli.DurationFlag{Name: "at", Usage: "Where to begin, from the beginning of the recording."},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			r, err := openRecording(cmd)
			if err != nil {
				return err
			}
			at := cmd.Duration("at")
			if span := r.Until.Sub(r.From); at < 0 || at >= span {
				return fmt.Errorf("--at is %v: the recording is %v long", at, span)
			}
			if _, _, err := net.SplitHostPort(cmd.String("listen")); err != nil {
				return fmt.Errorf("--listen is %q: write HOST:PORT or [IPV6]:PORT", cmd.String("listen"))
			}
			return replayRecording(ctx, a, r, cmd.String("listen"), at)
		},
	}
}

// openRecording reads the recording that is the only argument.
func openRecording(cmd *cli.Command) (*recorder.Recording, error) {
	if cmd.Args().Len() != 1 {
		return nil, fmt.Errorf("%s takes one file; see warpgauge %[1]s --help", cmd.Name)
	}
	f, err := os.Open(cmd.Args().First())
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("%q is no file", f.Name()), err)
	}
	r, err := recorder.Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	r.Name = filepath.Base(f.Name())
	return r, nil
}

func replayRecording(ctx context.Context, a *exporter.Program, r *recorder.Recording, listen string, at time.Duration) error {
	cfg, err := a.Config()
	if err != nil {
		return err
	}
	signals := exporter.Subscribe()
	defer signals.Release()
	log := exporter.NewLogger(cfg, a.Log)
	p := newReplay(r, a.Build.Version)
	p.seek(at)
	srv := server.New(p, server.Options{
		Addresses: []string{listen}, Logger: log, Registerer: prometheus.NewRegistry(), DrainTimeout: exporter.DrainTimeout,
		Routes: append(server.Page(page.Handler(page.Options{Version: a.Build.Version, Live: true})),
			server.Route{Pattern: api.Prefix, Handler: p, Labels: p.Paths(), Close: p.Close}),
	})
	if err := srv.Listen(ctx); err != nil {
		return err
	}
	log.Info("replaying", zap.String("file", r.Name), zap.String("cause", r.Cause), zap.Time("from", r.From), zap.Time("until", r.Until))
	return signals.Guard(ctx, log, func(ctx context.Context) error {
		return exporter.RunStages(ctx, log, exporter.Stage{Name: "replay", Run: p.run, Grace: exporter.ShortGrace}, exporter.Stage{Name: "own metrics", Run: p.self.Run, Grace: exporter.ShortGrace},
			exporter.Stage{Name: "HTTP server", Run: srv.Run, Grace: exporter.DrainTimeout + 300*time.Millisecond})
	})
}

// replay feeds a recording into rings, as a session would. What reads them is what reads
// those of sessions, with the time that is shown in place of now.
type replay struct {
	recording *recorder.Recording
	tracks    []track
	users     recordedUsers
	self      *selfmetrics.Page
	api       *api.API

	showing atomic.Pointer[moment] // nil before the first seek
}

// track is the rows of a device.
type track struct {
	source view.Source // without its ring
	times  []int64     // ms
	cells  [][]float64
}

// moment is what is shown since the last seek.
type moment struct {
	began    time.Time     // of our time
	at       time.Duration // from the beginning of the recording to what was shown then
	view     *view.View
	renderer *exposition.Renderer

	next []int // row of each track; of the goroutine that runs, and of seek before that
}

func newReplay(r *recorder.Recording, version string) *replay {
	p := &replay{recording: r, tracks: tracksOf(r), users: usersOf(r)}
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
		View: func() *view.View { return p.showing.Load().view }, Status: p.status, Health: p.health,
		Lists:     recordedLists{r.From, listOf(r)},
		Users:     func(d *collector.Device) []apiv1.User { return p.users.of[d.ID].Users },
		Processes: func(d *collector.Device) []apiv1.Process { return p.users.of[d.ID].Processes },
		Events:    log, History: newHistory(r), HistoryAge: r.Until.Sub(r.From), Now: p.now,
	})
	return p
}

// listOf is the fields of all lists of a recording: it has another one after a reload, and
// none if there was no device.
func listOf(r *recorder.Recording) (out field.List) {
	seen := make(map[string]bool)
	for _, list := range r.Fields {
		for _, f := range list.Fields {
			if !seen[f.Name] {
				seen[f.Name] = true
				out.Fields = append(out.Fields, f)
			}
		}
	}
	return out
}

// newHistory returns the history that a recording is.
func newHistory(r *recorder.Recording) *history.History {
	h := history.New(history.Options{Rows: rows.New(new(view.Board), nil), MaxBytes: math.MaxInt64})
	for i := range r.Series {
		s := &r.Series[i]
		h.Load(s.Series, s.Samples())
	}
	return h
}

// health judges by what is shown: what was before is not known.
func (p *replay) health() *verdict.Snapshot {
	return health.Once(health.Options{
		View: func() *view.View { return p.showing.Load().view }, Status: p.status, Rules: health.Table(), Logger: zap.NewNop(),
	}, p.now())
}

// recordedLists is the list of a recording.
type recordedLists struct {
	from   time.Time
	fields field.List
}

// Status implements api.Lists.
func (l recordedLists) Status() lists.Status {
	return lists.Status{InService: lists.List{Origin: "the recording", Fields: l.fields}, Applied: l.from}
}

// now is the time that is shown.
func (p *replay) now() time.Time {
	m := p.showing.Load()
	if m == nil {
		return p.recording.From
	}
	return p.recording.From.Add(min(m.shown(), p.recording.Until.Sub(p.recording.From)))
}

// shown is how far the time is from the beginning of the recording, if that had no end.
func (m *moment) shown() time.Duration { return m.at + time.Since(m.began) }

// Page returns the page of the time that is shown.
func (p *replay) Page(f exposition.Format, gzip bool) []byte {
	return p.showing.Load().renderer.Page(f, gzip)
}

// replayPath has the time that is shown, and sets it.
const replayPath = api.Prefix + "replay"

// ServeHTTP answers as the API does, and replayPath.
func (p *replay) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != replayPath {
		p.api.ServeHTTP(w, r)
		return
	}
	r.Pattern = replayPath
	if r.Method == http.MethodPost || r.Method == http.MethodPut {
		at, err := time.ParseDuration(r.URL.Query().Get("at"))
		if span := p.recording.Until.Sub(p.recording.From); err != nil || at < 0 || at >= span {
			err = fmt.Errorf("at is %q: write a duration from 0s to less than %v", r.URL.Query().Get("at"), span)
		}
		if err = cmp.Or(http.NewCrossOriginProtection().Check(r), err); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		p.seek(at)
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, "{\"from\":%q,\"until\":%q,\"time\":%q}\n", //nolint:errcheck // the client has gone
		p.recording.From.Format(time.RFC3339Nano), p.recording.Until.Format(time.RFC3339Nano), p.now().UTC().Format(time.RFC3339Nano))
}

// Paths are those of the API, and replayPath.
func (p *replay) Paths() []string { return append(p.api.Paths(), replayPath) }

// Close ends streams.
func (p *replay) Close() { p.api.Close() }

// seek shows the recording from a time after its beginning on. Rows before that are
// accumulated.
func (p *replay) seek(to time.Duration) {
	m := &moment{at: to, view: &view.View{Version: 1}, next: make([]int, len(p.tracks))}
	for i := range p.tracks {
		s := p.tracks[i].source
		s.Ring = ring.Make(feedRows, 1, len(s.Columns))
		m.view.Sources = append(m.view.Sources, &s)
	}
	board := new(view.Board)
	board.Store(m.view)
	m.renderer = exposition.New(board, exposition.Options{
		Hostname: p.recording.Hostname, Store: accumulate.New(accumulate.Options{}), Owners: &p.users, Self: p.self, Now: p.now,
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

// run feeds rows as time advances.
func (p *replay) run(ctx context.Context) error {
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

// tracksOf makes the rows of each device of its series: one for each time at which it was
// sampled. Events are in the first row after them. Samples of a driver's buffer are in the
// history only.
func tracksOf(r *recorder.Recording) (out []track) {
	of := make(map[string][]*recorder.Series)
	for i := range r.Series {
		s := &r.Series[i]
		if _, known := field.ByID(s.Field); known && !s.Buffered {
			of[s.Device] = append(of[s.Device], s)
		}
	}
	for i := range r.Devices {
		d := &r.Devices[i]
		if len(of[d.Device.ID]) == 0 {
			continue
		}
		t := track{source: view.Source{Collector: d.Collector, Fields: r.Fields[d.List], Devices: []collector.Device{d.Device}, Interval: d.Interval}}
		t.fill(of[d.Device.ID])
		out = append(out, t)
	}
	return out
}

func (t *track) fill(all []*recorder.Series) {
	times := make(map[int64]bool)
	for _, s := range all {
		t.source.Columns = append(t.source.Columns, collector.Column{Field: s.Field, Labels: s.Labels})
		for _, at := range s.Times {
			times[at] = times[at] || !isEvent(s)
		}
	}
	maps.DeleteFunc(times, func(_ int64, sampled bool) bool { return !sampled })
	t.times = slices.Sorted(maps.Keys(times))
	cells := make([]float64, len(t.times)*len(all))
	for i := range cells {
		cells[i] = math.NaN()
	}
	for i := range t.times {
		t.cells = append(t.cells, cells[i*len(all):][:len(all)])
	}
	for c, s := range all {
		row := 0
		for i, at := range s.Times {
			for row < len(t.times) && t.times[row] < at {
				row++
			}
			if row < len(t.times) {
				t.cells[row][c] = s.Values[i]
			}
		}
	}
}

func isEvent(s *recorder.Series) bool {
	d, known := field.ByID(s.Field)
	return known && d.Event
}

// silentAfter is how many intervals a device can be without a sample, at least silentLeast.
const (
	silentAfter = 3
	silentLeast = 5 * time.Second
)

// status is the state of devices at the time that is shown: up if there were samples just
// before, else as it was when the recording was written.
func (p *replay) status() []session.CollectorStatus {
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
		} else if was := p.users.of[d.Device.ID]; was.State == session.Lost.String() {
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

// recordedUsers are the users of devices when a recording was written.
type recordedUsers struct{ of map[string]apiv1.Device }

func usersOf(r *recorder.Recording) recordedUsers {
	u := recordedUsers{make(map[string]apiv1.Device)}
	for _, d := range r.Node.Devices {
		u.of[d.ID] = d
	}
	return u
}

var _ exposition.Owners = (*recordedUsers)(nil)

func (*recordedUsers) Version() uint64                        { return 1 }
func (*recordedUsers) Split(*collector.Device, field.ID) bool { return false }
func (*recordedUsers) Shares() *exposition.Shares             { return nil }

// Owners returns the labels that tell users apart. Labels of pods are not recorded.
func (u *recordedUsers) Owners(d *collector.Device) (out []exposition.Owner) {
	for _, user := range u.of[d.ID].Users {
		var o exposition.Owner
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

// column returns the samples of a column of a track.
func (t *track) column(c int) iter.Seq2[int64, float64] {
	return func(yield func(int64, float64) bool) {
		for i, at := range t.times {
			if !yield(at, t.cells[i][c]) {
				return
			}
		}
	}
}
