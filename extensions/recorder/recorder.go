// Package recorder is the flight recorder. When something happens (an XID, a lost or stalled device, throttling, health
// that becomes failed, or an operator's request), it writes the surrounding history into one file: all series, events,
// states and users. It reads the memory of other components, so nothing waits for its disk. Read decodes such a file,
// trusted or not, and a Replay shows it as of one time. Package extension connects a Recorder with the exporter.
package recorder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"regexp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/events"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/field"
	"warpgauge/pkg/file"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

// Node is the state of the recorded node.
type Node interface {
	Status() []session.CollectorStatus // in order of priority
	Users(*collector.Device) []User
}

// Options of New.
type Options struct {
	Directory         string
	Before, After     time.Duration // length of the recorded history before and after the trigger
	Files             int           // maximum number of files
	Bytes             int64         // maximum total size
	Hostname, Version string

	Board    *view.Board
	History  rows.History
	Node     Node
	Events   *events.Bus // source of the triggers; the recorder adds its own events
	Verdicts *events.Board
	Page     exposition.Options // names of series and users of devices

	Registerer prometheus.Registerer // for the recorder's own metrics
	Logger     *zap.Logger
}

const (
	interval = time.Second
	catchUp  = 2 * time.Second // until the history has the last samples
	// pause is the minimum time between two recordings; samePause applies to the same cause and
	// device, so that repeated events do not displace earlier recordings.
	pause     = time.Minute
	samePause = 10 * time.Minute
	// maxEvents bounds the events that wait for the next second, and the events of a recording.
	maxEvents = 1024
	// A device without samples is forgotten after that long.
	forget = 2 * time.Hour
	// leftover is the age at which an unfinished file counts as abandoned by a killed process.
	leftover = 10 * time.Minute

	prefix, suffix = "recording-", ".om.zst"
	probe          = ".recording-probe" // written before an operator's recording; tidy removes it as an unfinished file
)

var names = regexp.MustCompile(`^recording-[0-9]{8}-[0-9]{6}\.[0-9]{3}-[a-z_]+\.om\.zst$`)

// Recorder writes recordings. Run does the work; the other methods are safe for concurrent use.
type Recorder struct {
	o         Options
	log       *zap.Logger
	directory file.Private
	asked     chan chan error
	events    *events.Subscription
	list      atomic.Pointer[[]rows.Recording]

	written            *prometheus.CounterVec
	failed, suppressed prometheus.Counter

	// Used by Run's goroutine only.
	known   map[string]knownDevice // by ID
	pending *Trigger
	began   time.Time // start of the last recording, with a monotonic clock; zero after a failure
	started time.Time // start of Run: there are no earlier samples
	last    map[[2]string]time.Time
	headers map[string]rows.Recording // of existing files, by name
	recent  []events.Event            // that the next recording may show
	health  map[string]events.State   // of devices at the last step
}

// Trigger starts a recording.
type Trigger struct {
	Cause  string // from a fixed list
	Device string // device ID, or ""
	Text   string
	Time   time.Time
}

// knownDevice is a device from a View.
type knownDevice struct {
	Device
	list field.List
	seen time.Time
}

// New returns a Recorder. Run starts it. New panics if o.Registerer already has a Recorder's metrics.
func New(o Options) *Recorder {
	r := &Recorder{
		o: o, log: o.Logger.Named("recorder"),
		directory: file.Private{Path: o.Directory, Of: "recordings", Flag: "recorder-directory"},
		asked:     make(chan chan error),
		events:    o.Events.Subscribe(maxEvents),
		written: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warpgauge_recordings_total", Help: "Recordings that were written, by what set them off.",
		}, []string{"cause"}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "warpgauge_recording_failures_total", Help: "Recordings that could not be written.",
		}),
		suppressed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "warpgauge_recordings_suppressed_total", Help: "Causes of a recording for which none was begun, because the last one was too short a time ago.",
		}),
		known: make(map[string]knownDevice), last: make(map[[2]string]time.Time), headers: make(map[string]rows.Recording),
	}
	r.list.Store(&[]rows.Recording{})
	for _, c := range append(slices.Collect(maps.Values(causeOf)), causeHealth, causeOperator) {
		r.written.WithLabelValues(c)
	}
	o.Registerer.MustRegister(r.written, r.failed, r.suppressed)
	return r
}

// Run watches and writes until ctx ends. It then writes the pending recording without the missing samples.
func (r *Recorder) Run(ctx context.Context) error {
	r.log.Info("waiting for faults to record", zap.String("directory", r.o.Directory), zap.Duration("before", r.o.Before), zap.Duration("after", r.o.After))
	if err := r.tidy(time.Now()); err != nil {
		r.log.Warn("cannot use the directory of recordings", zap.Error(err))
	}
	r.started = time.Now()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			if r.pending != nil {
				r.finish(time.Now())
			}
			return nil
		case answer := <-r.asked:
			if err := r.directory.Write(probe, nil); err != nil {
				// Not wrapped: the server answers fs.ErrNotExist with 404.
				answer <- errors.New("cannot write to the directory of recordings (--" + r.directory.Flag + "): " + err.Error())
				continue
			}
			answer <- r.begin(Trigger{Cause: causeOperator, Text: "an operator asked", Time: time.Now()}, time.Now())
		case <-tick.C:
			r.step(time.Now())
		}
	}
}

// Record starts a recording, unless one is already pending.
func (r *Recorder) Record(ctx context.Context) error {
	answer := make(chan error, 1)
	select {
	case r.asked <- answer:
	case <-ctx.Done():
		return errors.New("the recorder is busy with the disk")
	}
	return <-answer
}

// Recordings returns the existing recordings, newest first.
func (r *Recorder) Recordings() []rows.Recording { return *r.list.Load() }

// Open implements rows.Recordings.
func (r *Recorder) Open(name string) (io.ReadSeekCloser, error) {
	if !names.MatchString(name) {
		return nil, fmt.Errorf("recording %q: %w", name, fs.ErrNotExist)
	}
	root, err := r.directory.Open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // opened for reading only
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("recording %q is not a file: %w", name, fs.ErrNotExist), err, f.Close())
	}
	return f, nil
}

// step processes the events since the last step.
func (r *Recorder) step(now time.Time) {
	r.remember(now)
	for len(r.events.C) > 0 {
		e := <-r.events.C
		if t, ok := triggerOf(&e); ok {
			_ = r.begin(t, now) // a counter counts suppressed triggers
		}
		r.recent = append(r.recent, e)
	}
	r.recordFailures(now)
	if r.pending != nil && now.Sub(r.began) >= r.o.After+catchUp {
		r.finish(now)
	}
	oldest := now.Add(-r.o.Before - r.o.After - 2*catchUp)
	r.recent = slices.DeleteFunc(r.recent, func(e events.Event) bool { return e.Time.Before(oldest) })
	r.recent = r.recent[max(0, len(r.recent)-maxEvents):]
}

// recordFailures starts a recording when a device's health becomes failed, unless the pending recording covers it.
func (r *Recorder) recordFailures(now time.Time) {
	states := make(map[string]events.State, len(r.health))
	for _, v := range r.o.Verdicts.Load().Verdicts {
		states[v.Device.ID] = v.State
		if before, known := r.health[v.Device.ID]; v.State == events.Failed && known && before != events.Failed && r.pending == nil {
			_ = r.begin(Trigger{Cause: causeHealth, Device: v.Device.ID, Text: cmp.Or(v.Text, v.Reason), Time: now}, now)
		}
	}
	r.health = states
}

// remember stores the descriptions of devices, for devices missing in later Views.
func (r *Recorder) remember(now time.Time) {
	for _, s := range r.o.Board.Load().Sources {
		for i := range s.Devices {
			d := &s.Devices[i]
			if k, ok := r.known[d.ID]; ok && k.seen.Equal(now) {
				continue // an earlier source has priority
			}
			r.known[d.ID] = knownDevice{Device: Device{Collector: s.Collector, Interval: s.Interval, Device: *d}, list: s.Fields, seen: now}
		}
	}
	maps.DeleteFunc(r.known, func(_ string, k knownDevice) bool { return now.Sub(k.seen) > forget })
	maps.DeleteFunc(r.last, func(_ [2]string, t time.Time) bool { return now.Sub(t) > samePause })
}

// begin starts a recording if the last one is long enough ago.
func (r *Recorder) begin(t Trigger, now time.Time) error {
	if r.pending != nil {
		return nil // the pending recording covers it
	}
	same := [2]string{t.Cause, t.Device}
	if since := now.Sub(r.began); !r.began.IsZero() && since < pause {
		r.suppressed.Inc()
		return fmt.Errorf("the last recording began %v ago: at most one is made in %v", since.Round(time.Second), pause)
	}
	if _, ok := r.last[same]; ok && t.Cause != causeOperator {
		r.suppressed.Inc()
		return nil
	}
	if t.Time.After(now) || now.Sub(t.Time) > r.o.Before {
		t.Time = now
	}
	r.began, r.last[same] = now, now
	r.pending = &t
	r.log.Info("recording begins", zap.String("cause", t.Cause), zap.String("device", t.Device), zap.String("what", t.Text))
	return nil
}

// finish writes the pending recording.
func (r *Recorder) finish(now time.Time) {
	p := r.pending
	r.pending = nil
	h, err := r.write(p)
	e := events.Event{Kind: events.Recording, Time: now, Text: "recorded: " + h.Name}
	if k, known := r.known[p.Device]; known {
		e.Device = &k.Device.Device
	}
	if err != nil {
		r.failed.Inc()
		r.began = time.Time{} // there is no recording that the next one could displace
		r.log.Error("cannot write a recording", zap.String("cause", p.Cause), zap.Error(err))
		e.Text, e.Bad = "cannot write a recording: "+err.Error(), true
	} else {
		r.written.WithLabelValues(p.Cause).Inc()
		r.log.Info("recording written", zap.String("file", h.Name))
	}
	r.o.Events.Publish(e)
	if err := r.tidy(now); err != nil {
		r.log.Warn("cannot remove old recordings", zap.Error(err))
	}
}

// header returns the header for a recording of p.
func (r *Recorder) header(p *Trigger) *Header {
	from, until := p.Time.Add(-r.o.Before), p.Time.Add(r.o.After)
	if from.Before(r.started) && r.started.Before(p.Time) {
		from = r.started
	}
	at := p.Time.UTC().Truncate(time.Millisecond)
	h := &Header{
		Format: format,
		Recording: rows.Recording{
			Name: prefix + at.Format("20060102-150405.000") + "-" + p.Cause + suffix,
			Time: at, Cause: p.Cause, Device: p.Device,
			From: from.UTC().Truncate(time.Millisecond), Until: until.UTC().Truncate(time.Millisecond),
		},
		Text: p.Text, Version: r.o.Version, Hostname: r.o.Hostname, Lists: []string{}, Devices: []Device{}, Series: []rows.Series{},
		Verdicts: r.o.Verdicts.Load().Verdicts,
	}
	for _, e := range r.recent {
		if !e.Time.Before(h.From) && e.Time.Before(h.Until) {
			h.Events = append(h.Events, e)
		}
	}
	return h
}

// addSeries adds series and their devices to a header, and returns the devices' field lists.
func (r *Recorder) addSeries(h *Header, all []rows.Series) (lists []field.List) {
	at, added, states := make(map[*field.Field]int), make(map[string]bool), make(map[string]*session.DeviceStatus)
	for _, c := range slices.Backward(r.o.Node.Status()) {
		for i := range c.Devices {
			states[c.Devices[i].Device.ID] = &c.Devices[i]
		}
	}
	for _, s := range all {
		k, ok := r.known[s.Device]
		if !ok || len(k.list.Fields) == 0 {
			continue // removed long ago
		}
		h.Series = append(h.Series, s)
		if added[s.Device] {
			continue
		}
		added[s.Device] = true
		list := &k.list.Fields[0]
		if _, ok := at[list]; !ok {
			text := string(field.Format(k.list)) // several sessions can share a list
			if at[list] = slices.Index(h.Lists, text); at[list] < 0 {
				at[list] = len(h.Lists)
				h.Lists, lists = append(h.Lists, text), append(lists, k.list)
			}
		}
		d := k.Device
		d.List, d.Users = at[list], r.o.Node.Users(&d.Device)
		if status := states[s.Device]; status != nil {
			d.State, d.Reason = status.State.String(), status.Reason
		}
		h.Devices = append(h.Devices, d)
	}
	return lists
}

func (r *Recorder) write(p *Trigger) (*Header, error) {
	h := r.header(p)
	from, until := h.From.UnixMilli(), h.Until.UnixMilli()
	all := slices.DeleteFunc(r.o.History.Series("", 0), func(s rows.Series) bool { return s.Last < from })
	lists := r.addSeries(h, all)
	root, err := r.directory.Open()
	if err != nil {
		return h, err
	}
	defer func() { _ = root.Close() }() // errors of files are reported separately
	return h, file.WriteWhole(root, h.Name, func(w io.Writer) error {
		return write(&limited{to: w, left: min(maxFile, r.o.Bytes)}, h, lists, r.o.Page, func(s rows.Series) iter.Seq2[int64, float64] {
			return r.o.History.Samples(s, from, until)
		})
	})
}

// tidy removes the oldest recordings beyond the limits and updates the list.
func (r *Recorder) tidy(now time.Time) error {
	root, err := r.directory.Open()
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // errors of files are reported separately
	files, err := file.List(root, prefix, now.Add(-leftover))
	if files == nil && err != nil {
		return err
	}
	files = slices.DeleteFunc(files, func(f fs.FileInfo) bool { return !names.MatchString(f.Name()) })
	slices.SortFunc(files, func(a, b fs.FileInfo) int { return cmp.Compare(b.Name(), a.Name()) }) // newest first
	list, total := []rows.Recording{}, int64(0)
	headers := make(map[string]rows.Recording)
	for i, f := range files {
		if total += f.Size(); i >= r.o.Files || total > r.o.Bytes {
			err = errors.Join(err, root.Remove(f.Name()))
			continue
		}
		h, ok := r.headers[f.Name()]
		if !ok || h.Bytes != f.Size() {
			var e error
			if h, e = headerOf(root, f); e != nil {
				r.log.Warn("cannot read a recording", zap.String("file", f.Name()), zap.Error(e))
				continue
			}
		}
		headers[f.Name()] = h
		list = append(list, h)
	}
	r.headers = headers
	r.list.Store(&list)
	return err
}

func headerOf(root *os.Root, info fs.FileInfo) (rows.Recording, error) {
	f, err := root.Open(info.Name())
	if err != nil {
		return rows.Recording{}, err
	}
	h, err := ReadHeader(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return rows.Recording{}, err
	}
	h.Name, h.Bytes = info.Name(), info.Size()
	return h.Recording, nil
}
