// Package history keeps the last minutes of every series at full sampling rate, bounded in age and
// bytes. It follows a rows.Reader, so no sampler waits for it. Series are identified by device,
// field and labels, so their samples survive sessions.
//
// Samples are stored in chunks of Prometheus' XOR encoding. Only the rows.Reader writes. Readers
// copy references to chunks under a lock held for microseconds, then decode them. Values are the
// readings from the rings in the unit of their field.Descriptor, without a list's scale.
package history

import (
	"cmp"
	"context"
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/view"
)

// Options of New.
type Options struct {
	Rows       *rows.Reader
	MaxAge     time.Duration         // approximate age of the oldest sample; 0 means DefaultAge
	MaxBytes   int64                 // of memory; 0 means DefaultBytes
	Registerer prometheus.Registerer // for the history's own metrics, or nil
}

// The default limits.
const (
	DefaultAge   = 15 * time.Minute
	DefaultBytes = 64 << 20
)

// interval is the time between two removals of old samples.
const interval = time.Second

// maxAhead bounds how far a row's time may be in the future, so that a wrong time, or one from
// before the clock was set back, does not expire all other samples.
const maxAhead = time.Minute

// History holds the samples of all series. It is safe for concurrent use.
type History struct {
	rows   *rows.Reader
	maxAge int64 // ms

	mu      sync.Mutex // guards the following fields
	store   store
	follows []*follow // by index of the source
	swept   int64     // ms
}

// New returns an empty History. It panics if o.Registerer already has a History's metrics.
func New(o Options) *History {
	h := &History{rows: o.Rows, maxAge: cmp.Or(o.MaxAge, DefaultAge).Milliseconds()}
	h.store = store{limit: cmp.Or(o.MaxBytes, DefaultBytes), span: max(h.maxAge/chunksPerAge, 1), series: make(map[key]*series)}
	if o.Registerer != nil {
		h.register(o.Registerer)
	}
	o.Rows.Follow(h)
	return h
}

func (h *History) register(to prometheus.Registerer) {
	of := func(f func(*store) float64) func() float64 {
		return func() float64 {
			h.mu.Lock()
			defer h.mu.Unlock()
			return f(&h.store)
		}
	}
	to.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "warpgauge_history_bytes", Help: "Memory that the history takes, about.",
		}, of(func(s *store) float64 { return float64(s.bytes) })),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "warpgauge_history_series", Help: "Series in the history.",
		}, of(func(s *store) float64 { return float64(len(s.series)) })),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "warpgauge_history_samples_total", Help: "Samples added to the history.",
		}, of(func(s *store) float64 { return float64(s.samples) })),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "warpgauge_history_refused_samples_total", Help: "Samples of series for which the history has no room (--history-bytes).",
		}, of(func(s *store) float64 { return float64(s.refused) })),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "warpgauge_history_lost_rows_total", Help: "Rows that were overwritten before the history had read them.",
		}, func() float64 { return float64(h.rows.Overruns()) }))
}

// Run drops old samples until ctx ends.
func (h *History) Run(ctx context.Context) error {
	return view.Every(ctx, interval, h.Sync)
}

// Sync adds all new rows and drops samples that are too old at now.
func (h *History) Sync(now time.Time) {
	h.rows.Sync(now)
	ms := now.UnixMilli()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.store.forget(ms - h.maxAge)
	if ms < h.swept || ms-h.swept >= h.store.span {
		h.swept = ms
		h.store.sweep(ms-h.store.span, ms-h.maxAge, ms+maxAhead.Milliseconds())
	}
}

// Bind replaces the follows for a new View.
func (h *History) Bind(_ *view.View, sources []rows.Source, _ time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.follows = make([]*follow, len(sources))
	for i := range sources {
		h.follows[i] = newFollow(&sources[i])
	}
}

// Row adds the samples of a row.
func (h *History) Row(row *rows.Row) {
	now, at := row.Read.UnixMilli(), row.Time/int64(time.Millisecond)
	if at > now+maxAhead.Milliseconds() || at < now-h.maxAge {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.follows[row.Source]
	for i := range f.at {
		f.at[i] = notSampled
		if row.Devices[i].Sampled {
			if ms := row.Stamps[i] / int64(time.Millisecond); ms <= at+maxAhead.Milliseconds() && ms >= now-h.maxAge {
				f.at[i] = ms
			}
		}
	}
	for i := range f.taps {
		t := &f.taps[i]
		sampled, v := f.at[t.device], row.Cells[t.cell]
		switch {
		case t.event:
			if !math.IsNaN(v) { // an event, which counts even on a lost device
				h.store.add(t, at, v, row.Overlap)
			}
		case sampled == notSampled:
		case t.to > 0:
			h.store.addBlock(t, sampled, row.Cells[t.cell:t.to], row.Overlap)
		default:
			h.store.add(t, sampled, v, row.Overlap)
		}
	}
	h.store.forget(math.MinInt64)
}

// follow maps the cells of a source to series.
type follow struct {
	at   []int64 // sample time by device in the current row, ms
	taps []tap
}

const notSampled = math.MinInt64

// tap maps a cell, or a block of buffered samples, to a series.
type tap struct {
	key
	labels       []collector.Label
	device, cell int
	to           int // end of the block; 0 for a reading
	event        bool
	series       *series // nil before the first value
	end          float64 // time of a block's newest sample, ms
}

func newFollow(src *rows.Source) *follow {
	f := &follow{at: make([]int64, len(src.Devices))}
	for i := range src.Columns {
		c := &src.Columns[i]
		if !src.Supplies[c.Device] || src.Fields.Hides(c.Field) {
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
