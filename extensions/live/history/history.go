// Package history keeps the last minutes of every series at the rate at which it is
// sampled, bounded in age and bytes. It follows the rings as any reader of them does, so
// no sampler waits for it, and what it holds survives the sessions that sampled it: a
// series is a device, a field and labels.
//
// Samples are in chunks of Prometheus' XOR encoding. History.Run is the only writer;
// readers copy references to chunks under a lock that is held for microseconds and decode
// them after that. What is read is what the rings had: readings in the unit of their
// field.Descriptor, not scaled as a list may ask.
package history

import (
	"cmp"
	"context"
	"maps"
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/view"
)

// Options of New.
type Options struct {
	Board      *view.Board
	MaxAge     time.Duration         // of the oldest sample, about; 0 means DefaultAge
	MaxBytes   int64                 // of memory; 0 means DefaultBytes
	Registerer prometheus.Registerer // of the history's own metrics; nil: none
}

// The default limits.
const (
	DefaultAge   = 15 * time.Minute
	DefaultBytes = 64 << 20
)

// Run reads the rings a few times in the shortest interval of a source, within these
// bounds. The fastest ring, of 10 ms ticks, holds 10 s.
const (
	shortestPause = 100 * time.Millisecond
	longestPause  = time.Second
	pausesPerTick = 4
)

// maxAhead is how far from now the time of a row may be, so that one that lies, or was
// written before the clock was set back, does not make everything else old.
const maxAhead = time.Minute

// History is the samples of all series. Its methods but Run and Sync may be called by any
// number of goroutines at the same time.
type History struct {
	board   *view.Board
	maxAge  int64 // ms
	metrics *metrics

	// Of the goroutine that calls Sync.
	view    *view.View
	follows []*follow
	stamps  map[string]*int64 // by device: stamp of the last sample, through all rings it had
	row     ring.Row
	swept   int64 // ms

	mu    sync.Mutex
	store store
}

// New returns an empty History. It panics if o.Registerer has metrics of another one.
func New(o Options) *History {
	h := &History{
		board:   o.Board,
		maxAge:  cmp.Or(o.MaxAge, DefaultAge).Milliseconds(),
		metrics: newMetrics(o.Registerer),
		stamps:  make(map[string]*int64),
	}
	h.store.init(cmp.Or(o.MaxBytes, DefaultBytes), max(h.maxAge/chunksPerAge, 1))
	o.Board.AddReader()
	return h
}

// Run follows the rings until ctx ends.
func (h *History) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		h.Sync(time.Now())
		timer.Reset(h.pause())
	}
}

// pause is the time until the next reading.
func (h *History) pause() time.Duration {
	out := longestPause
	for _, f := range h.follows {
		out = min(out, f.source.Interval/pausesPerTick)
	}
	return max(out, shortestPause)
}

// Sync takes every row that is new on the board. It is called by one goroutine at a time:
// Run, or in its place one that has a clock of its own.
func (h *History) Sync(now time.Time) {
	ms := now.UnixMilli()
	v := h.board.Load()
	h.read(ms) // of rings that leave, too
	if v != h.view {
		for _, next := range v.After(h.view) {
			h.bind(next)
			h.read(ms)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.store.expire(ms - h.maxAge)
	if ms < h.swept || ms-h.swept >= h.store.span {
		h.swept = ms
		h.store.sweep(ms-h.store.span, ms-h.maxAge, ms+maxAhead.Milliseconds())
	}
	h.metrics.publish(&h.store)
}

// bind replaces the follows by those of v. A ring that stays is read on from where it was.
func (h *History) bind(v *view.View) {
	old := make(map[*ring.Ring]*follow, len(h.follows))
	for _, f := range h.follows {
		old[f.source.Ring] = f
	}
	h.view, h.follows = v, make([]*follow, 0, len(v.Sources))
	claimed := make(map[string]bool) // a device is that of the first source that has it
	for _, src := range v.Sources {
		if !src.WellFormed() {
			continue
		}
		f := h.newFollow(src, claimed)
		if o := old[src.Ring]; o != nil {
			f.rows, f.before = o.rows, o.before
		}
		h.follows = append(h.follows, f)
		for i := range src.Devices {
			claimed[src.Devices[i].ID] = true
		}
	}
	oldest := (h.swept - h.maxAge) * int64(time.Millisecond)
	maps.DeleteFunc(h.stamps, func(id string, stamp *int64) bool { return !claimed[id] && *stamp < oldest })
}

// read takes the new rows of the rings that are followed.
func (h *History) read(now int64) {
	for _, f := range h.follows {
		lost := f.rows.Overruns()
		// A writer that is faster than us cannot keep us here.
		for limit := 2 * f.source.Ring.Rows(); limit > 0 && f.rows.Next(&h.row); limit-- {
			h.take(f, now)
		}
		h.metrics.lost.Add(float64(f.rows.Overruns() - lost))
	}
}

// take adds the samples of the row in hand.
func (h *History) take(f *follow, now int64) {
	at := h.row.Time / int64(time.Millisecond)
	if at > now+maxAhead.Milliseconds() || at < now-h.maxAge {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range f.devices {
		d := &f.devices[i]
		if d.stamp == nil {
			continue
		}
		stamp := h.row.Stamps[i]
		d.sampled = stamp > 0 && stamp != *d.stamp && !(h.row.N < f.before && stamp < *d.stamp)
		if !d.sampled {
			continue
		}
		*d.stamp = stamp
		if d.at = stamp / int64(time.Millisecond); d.at > at+maxAhead.Milliseconds() || d.at < now-h.maxAge {
			d.sampled = false
		}
	}
	for i := range f.taps {
		t := &f.taps[i]
		d, v := &f.devices[t.device], h.row.Cells[t.cell]
		switch {
		case t.event:
			if !math.IsNaN(v) { // something happened, which is reported of a lost device, too
				h.store.add(t, at, v, h.row.N < f.before)
			}
		case !d.sampled:
		case t.to > 0:
			h.store.addBlock(t, d.at, h.row.Cells[t.cell:t.to], h.row.N < f.before)
		default:
			h.store.add(t, d.at, v, h.row.N < f.before)
		}
	}
	h.store.shrink()
}

// follow reads one ring of the View.
type follow struct {
	source  *view.Source
	rows    *ring.Follower
	before  uint64 // number of the first row after it was bound: those before may overlap with another ring's
	devices []deviceTap
	taps    []tap
}

type deviceTap struct {
	stamp   *int64 // nil if another source of the View supplies the device
	sampled bool   // in the row in hand
	at      int64  // when, ms
}

// tap leads from a cell, or a block of buffered samples, to a series.
type tap struct {
	key
	labels       []collector.Label
	device, cell int
	to           int // where the block ends; 0: it is a reading
	event        bool
	series       *series // nil until there is a value
	end          float64 // of the newest sample of a block, ms
}

func (h *History) newFollow(src *view.Source, claimed map[string]bool) *follow {
	f := &follow{source: src, rows: src.Ring.Follow(), before: src.Ring.Head(), devices: make([]deviceTap, len(src.Devices))}
	for i := range src.Devices {
		id := src.Devices[i].ID
		if claimed[id] {
			continue
		}
		if h.stamps[id] == nil {
			h.stamps[id] = new(int64)
		}
		f.devices[i].stamp = h.stamps[id]
	}
	for i := range src.Columns {
		c := &src.Columns[i]
		if f.devices[c.Device].stamp == nil || src.Fields.Hides(c.Field) {
			continue
		}
		t := tap{key: keyOf(src.Devices[c.Device].ID, c), labels: c.Labels, device: c.Device, cell: i}
		switch {
		case c.Buffer > 1:
			if n := len(f.taps); n > 0 && f.taps[n-1].to == i && f.taps[n-1].key == t.key {
				f.taps[n-1].to++
			}
			continue
		case c.Buffer == 1:
			t.to = i + 1
		default:
			d, known := field.ByID(c.Field)
			t.event = known && d.Event
		}
		f.taps = append(f.taps, t)
	}
	return f
}
