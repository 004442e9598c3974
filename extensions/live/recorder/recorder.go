// Package recorder is the flight recorder: when something happens (an XID, a device that is
// lost or stalled, an uncorrected ECC error, throttling, a burst of NVLink errors, or an
// operator asks), it writes the history around it into one file: all series, events, states
// and users of devices. A Recorder reads the memory of others, so that nothing waits
// for its disk. Read reads such a file, of whatever origin, and a Replay serves page, API and
// metrics of one.
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

	"warpgauge/extensions/live/api"
	"warpgauge/extensions/live/apiv1"
	"warpgauge/extensions/live/history"
	"warpgauge/pkg/events"
	"warpgauge/pkg/exposition"
	"warpgauge/pkg/field"
	"warpgauge/pkg/file"
	"warpgauge/pkg/view"
)

// Options of New.
type Options struct {
	Directory         string
	Before, After     time.Duration // of the history around what happened
	Files             int           // most files that are kept
	Bytes             int64         // and their size together
	Hostname, Version string

	Board   *view.Board
	History *history.History
	Node    func() *apiv1.Devices // states, users and processes of devices
	Events  *events.Bus           // what sets off recordings
	Log     *api.Log              // what happens; recordings are added to it
	Health  func() *apiv1.Health  // verdicts on devices; nil: none
	Page    exposition.Options    // how the page names series, and who uses devices

	Registerer prometheus.Registerer // of the recorder's own metrics; nil: none
	Logger     *zap.Logger
}

const (
	interval = time.Second
	catchUp  = 2 * time.Second // until the last samples are in the history
	// A recording begins at most once in pause, and for the same cause and device once in
	// samePause, so that repeated events do not push out earlier recordings.
	pause     = time.Minute
	samePause = 10 * time.Minute
	// maxWaiting is how many events wait for the next second.
	maxWaiting = 1024
	// What has no sample any more is forgotten after so long.
	forget = 2 * time.Hour
	// leftover is how old a file is that a process which was killed had not finished.
	leftover = 10 * time.Minute

	prefix, suffix = "recording-", ".om.zst"
)

var names = regexp.MustCompile(`^recording-[0-9]{8}-[0-9]{6}\.[0-9]{3}-[a-z_]+\.om\.zst$`)

// Recorder writes recordings. Run does the work; the other methods can be called by any
// goroutine.
type Recorder struct {
	o         Options
	log       *zap.Logger
	directory file.Private
	asked     chan chan error
	events    *events.Subscription
	list      atomic.Pointer[[]apiv1.Recording]

	written            *prometheus.CounterVec
	failed, suppressed prometheus.Counter

	// Of the goroutine of Run.
	known   map[string]knownDevice // by ID
	pending *pending
	began   time.Time // of the last recording
	started time.Time // of Run: there are no samples of before
	last    map[[2]string]time.Time
	headers map[string]apiv1.Recording // of the files there are, by name
	health  map[string]string          // verdicts on devices when they were last looked at
}

// pending is a recording that is waiting for the samples after what happened.
type pending struct {
	Trigger
	began time.Time // with a monotonic clock
}

// Trigger is something that sets off a recording.
type Trigger struct {
	Cause  string // a short fixed word
	Device string // its ID; "" if it is not about one
	Text   string
	Time   time.Time
}

// knownDevice is a device that was in a View.
type knownDevice struct {
	Device
	list field.List
	seen time.Time
}

// New returns a Recorder that does not run yet. It panics if o.Registerer has metrics of
// another one.
func New(o Options) *Recorder {
	r := &Recorder{
		o: o, log: o.Logger.Named("recorder"),
		directory: file.Private{Path: o.Directory, Of: "recordings", Flag: "recorder-directory"},
		asked:     make(chan chan error),
		events:    o.Events.Subscribe(maxWaiting, slices.Collect(maps.Keys(causeOf))...),
		written: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warpgauge_recordings_total", Help: "Recordings that were written, by what set them off.",
		}, []string{"cause"}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "warpgauge_recording_failures_total", Help: "Recordings that could not be written.",
		}),
		suppressed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "warpgauge_recordings_suppressed_total", Help: "Causes of a recording for which none was begun, because the last one was too short a time ago.",
		}),
		known: make(map[string]knownDevice), last: make(map[[2]string]time.Time), headers: make(map[string]apiv1.Recording),
	}
	r.list.Store(&[]apiv1.Recording{})
	for _, c := range append(slices.Collect(maps.Values(causeOf)), causeHealth, causeOperator) {
		r.written.WithLabelValues(c)
	}
	if o.Registerer != nil {
		o.Registerer.MustRegister(r.written, r.failed, r.suppressed)
	}
	return r
}

// Run watches and writes until ctx ends. A recording that is waiting for more samples is
// written then as it is.
func (r *Recorder) Run(ctx context.Context) error {
	r.log.Info("recordings are written", zap.String("directory", r.o.Directory), zap.Duration("before", r.o.Before), zap.Duration("after", r.o.After))
	if err := r.tidy(time.Now()); err != nil {
		r.log.Warn("directory of recordings cannot be used", zap.Error(err))
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
			answer <- r.begin(Trigger{Cause: causeOperator, Text: "an operator asked", Time: time.Now()}, time.Now())
		case <-tick.C:
			r.step(time.Now())
		}
	}
}

// Record begins a recording. If one is waiting already, that is the one.
func (r *Recorder) Record(ctx context.Context) error {
	answer := make(chan error, 1)
	select {
	case r.asked <- answer:
	case <-ctx.Done():
		return errors.New("the recorder is busy with the disk")
	}
	return <-answer
}

// Recordings returns what recordings there are, the newest first.
func (r *Recorder) Recordings() []apiv1.Recording { return *r.list.Load() }

var _ api.Recorder = (*Recorder)(nil)

// Open opens the file of a recording. An error that is fs.ErrNotExist says that there is none of
// that name.
func (r *Recorder) Open(name string) (io.ReadSeekCloser, error) {
	if !names.MatchString(name) {
		return nil, fmt.Errorf("recording %q: %w", name, fs.ErrNotExist)
	}
	root, err := r.directory.Open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }() // it was only read
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("recording %q is no file: %w", name, fs.ErrNotExist), err, f.Close())
	}
	return f, nil
}

// step handles the events since the last step.
func (r *Recorder) step(now time.Time) {
	r.remember(now)
	for len(r.events.C) > 0 {
		e := <-r.events.C
		if t, ok := triggerOf(&e); ok {
			_ = r.begin(t, now) // suppressed ones are counted
		}
	}
	r.recordFailures(now)
	if r.pending != nil && now.Sub(r.pending.began) >= r.o.After+catchUp {
		r.finish(now)
	}
}

// recordFailures begins a recording when a device's health has become failed, unless that is in one
// which has begun.
func (r *Recorder) recordFailures(now time.Time) {
	if r.o.Health == nil {
		return
	}
	verdicts := make(map[string]string, len(r.health))
	for _, h := range r.o.Health().Devices {
		verdicts[h.ID] = h.State
		if before := r.health[h.ID]; h.State == "failed" && before != "" && before != "failed" && r.pending == nil {
			_ = r.begin(Trigger{Cause: causeHealth, Device: h.ID, Text: cmp.Or(h.Text, h.Reason), Time: now}, now)
		}
	}
	r.health = verdicts
}

// remember keeps the descriptions of devices, also of devices that a later View lacks.
func (r *Recorder) remember(now time.Time) {
	for _, s := range r.o.Board.Load().Sources {
		for i := range s.Devices {
			d := &s.Devices[i]
			if k, ok := r.known[d.ID]; ok && k.seen.Equal(now) {
				continue // of a source that goes first
			}
			r.known[d.ID] = knownDevice{Device: Device{Collector: s.Collector, Interval: s.Interval, Device: *d}, list: s.Fields, seen: now}
		}
	}
	maps.DeleteFunc(r.known, func(_ string, k knownDevice) bool { return now.Sub(k.seen) > forget })
	maps.DeleteFunc(r.last, func(_ [2]string, t time.Time) bool { return now.Sub(t) > samePause })
}

// begin begins a recording, if the last one is long enough ago.
func (r *Recorder) begin(t Trigger, now time.Time) error {
	if r.pending != nil {
		return nil // it is in that one
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
	r.pending = &pending{Trigger: t, began: now}
	r.log.Info("recording begins", zap.String("cause", t.Cause), zap.String("device", t.Device), zap.String("what", t.Text))
	return nil
}

// finish writes the pending recording.
func (r *Recorder) finish(now time.Time) {
	p := r.pending
	r.pending = nil
	h, err := r.write(p)
	if err != nil {
		r.failed.Inc()
		r.log.Error("recording cannot be written", zap.String("cause", p.Cause), zap.Error(err))
		r.o.Log.Add(apiv1.Event{Kind: string(events.Recording), Device: p.Device, Text: "recording cannot be written: " + err.Error(), Bad: true})
	} else {
		r.written.WithLabelValues(p.Cause).Inc()
		r.log.Info("recording written", zap.String("file", h.Name))
		r.o.Log.Add(apiv1.Event{Kind: string(events.Recording), Device: p.Device, Text: "recorded: " + h.Name})
	}
	if err := r.tidy(now); err != nil {
		r.log.Warn("old recordings cannot be removed", zap.Error(err))
	}
}

// header returns the header of a recording of p.
func (r *Recorder) header(p *pending) *Header {
	from, until := p.Time.Add(-r.o.Before), p.Time.Add(r.o.After)
	if from.Before(r.started) && r.started.Before(p.Time) {
		from = r.started
	}
	at := p.Time.UTC().Truncate(time.Millisecond)
	h := &Header{
		Format: format,
		Recording: apiv1.Recording{
			Name: prefix + at.Format("20060102-150405.000") + "-" + p.Cause + suffix,
			Time: at, Cause: p.Cause, Device: p.Device,
			From: from.UTC().Truncate(time.Millisecond), Until: until.UTC().Truncate(time.Millisecond),
		},
		Text: p.Text, Version: r.o.Version, Hostname: r.o.Hostname, Lists: []string{}, Devices: []Device{}, Series: []history.Series{}, Node: *r.o.Node(),
	}
	if r.o.Health != nil {
		h.Health = r.o.Health()
	}
	for _, e := range r.o.Log.All() {
		if !e.Time.Before(h.From) && e.Time.Before(h.Until) {
			h.Events = append(h.Events, e)
		}
	}
	return h
}

// addSeries adds series, the devices that have them, and the devices' field lists, which it returns.
func (r *Recorder) addSeries(h *Header, all []history.Series) (lists []field.List) {
	at, added := make(map[*field.Field]int), make(map[string]bool)
	for _, s := range all {
		k, ok := r.known[s.Device]
		if !ok || len(k.list.Fields) == 0 {
			continue // gone for long
		}
		h.Series = append(h.Series, s)
		if added[s.Device] {
			continue
		}
		added[s.Device] = true
		list := &k.list.Fields[0]
		if _, ok := at[list]; !ok {
			text := string(field.Format(k.list)) // which several sessions can have
			if at[list] = slices.Index(h.Lists, text); at[list] < 0 {
				at[list] = len(h.Lists)
				h.Lists, lists = append(h.Lists, text), append(lists, k.list)
			}
		}
		d := k.Device
		d.List = at[list]
		h.Devices = append(h.Devices, d)
	}
	return lists
}

func (r *Recorder) write(p *pending) (*Header, error) {
	h := r.header(p)
	from, until := h.From.UnixMilli(), h.Until.UnixMilli()
	all := slices.DeleteFunc(r.o.History.Series(history.Match{}), func(s history.Series) bool { return s.Last < from })
	lists := r.addSeries(h, all)
	root, err := r.directory.Open()
	if err != nil {
		return h, err
	}
	defer func() { _ = root.Close() }() // files are closed on their own
	return h, file.WriteWhole(root, h.Name, func(w io.Writer) error {
		return write(&limited{to: w, left: min(maxFile, r.o.Bytes)}, h, lists, r.o.Page, func(s history.Series) iter.Seq2[int64, float64] {
			return r.o.History.Samples(s, from, until)
		})
	})
}

// tidy removes the oldest recordings while there are too many, and lists the others.
func (r *Recorder) tidy(now time.Time) error {
	root, err := r.directory.Open()
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // files are closed on their own
	files, err := file.List(root, prefix, now.Add(-leftover))
	if files == nil && err != nil {
		return err
	}
	files = slices.DeleteFunc(files, func(f fs.FileInfo) bool { return !names.MatchString(f.Name()) })
	slices.SortFunc(files, func(a, b fs.FileInfo) int { return cmp.Compare(b.Name(), a.Name()) }) // the newest first
	list, total := []apiv1.Recording{}, int64(0)
	headers := make(map[string]apiv1.Recording)
	for i, f := range files {
		if total += f.Size(); i >= r.o.Files || total > r.o.Bytes {
			err = errors.Join(err, root.Remove(f.Name()))
			continue
		}
		h, ok := r.headers[f.Name()]
		if !ok || h.Bytes != f.Size() {
			var e error
			if h, e = headerOf(root, f); e != nil {
				r.log.Warn("recording cannot be read", zap.String("file", f.Name()), zap.Error(e))
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

func headerOf(root *os.Root, info fs.FileInfo) (apiv1.Recording, error) {
	f, err := root.Open(info.Name())
	if err != nil {
		return apiv1.Recording{}, err
	}
	h, err := ReadHeader(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return apiv1.Recording{}, err
	}
	out := h.Recording
	out.Name, out.Bytes = info.Name(), info.Size()
	return out, nil
}
