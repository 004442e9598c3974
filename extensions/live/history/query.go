package history

import (
	"iter"
	"math"
	"slices"

	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Match selects series. What is left zero matches all.
type Match struct {
	Device string // its ID
	Field  field.ID
}

// Series is a series that the history has. Samples of a driver's buffer, which have times
// of their own, are a series next to that of the readings (see collector.Buffer).
type Series struct {
	Device   string            `json:"device"`
	Field    field.ID          `json:"field"`
	Labels   []collector.Label `json:"labels,omitempty"` // that tell series of one device and field apart, sorted by name
	Buffered bool              `json:"buffered,omitempty"`
	Last     int64             `json:"-"` // ms, of the newest sample
}

// Load adds samples of a series that were recorded. Sync must not be called at the same time.
func (h *History) Load(s Series, samples iter.Seq2[int64, float64]) {
	t := tap{key: keyOf(s.Device, &collector.Column{Field: s.Field, Labels: s.Labels}), labels: s.Labels, event: true}
	t.buffered = s.Buffered
	h.mu.Lock()
	defer h.mu.Unlock()
	if t.series = h.store.series[t.key]; t.series == nil && !h.store.make(&t) {
		return
	}
	for at, v := range samples {
		h.store.add(&t, at, v, true)
		h.store.forget(math.MinInt64)
	}
}

// Series lists the series that match, in the order in which they first had a value.
func (h *History) Series(m Match) []Series {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []Series
	for _, x := range h.store.order {
		if (m.Device == "" || m.Device == x.device) && (m.Field == 0 || m.Field == x.field) {
			out = append(out, Series{Device: x.device, Field: x.field, Labels: x.labels, Buffered: x.buffered, Last: x.last})
		}
	}
	return out
}

// Samples returns the samples of a series from a time to before another (Unix ms), the
// oldest first: their times, which ascend (those of events can be equal), and values, NaN
// if the reading was blank. While a device was not sampled it has no samples, and an event has one
// each time. The samples are those at the time of the call, whenever they are read; a
// series that has gone has none.
func (h *History) Samples(s Series, from, until int64) iter.Seq2[int64, float64] {
	parts := h.parts(s, from, until)
	return func(yield func(int64, float64) bool) {
		for _, p := range parts {
			for at, v := range decode(p) {
				if at >= until {
					return
				}
				if at >= from && !yield(at, v) {
					return
				}
			}
		}
	}
}

// Point summarises a series in a span of time.
type Point struct {
	Samples        int     // that were not blank; if there were none, the others are NaN
	Min, Max, Mean float64 //
}

// Points divides a time into at most n spans of a whole number of milliseconds each, and
// returns a summary of a series' samples for each. It costs as much as reading them.
func (h *History) Points(s Series, from, until int64, n int) (points []Point, step int64) {
	if until <= from || n <= 0 {
		return nil, 0
	}
	width := uint64(until) - uint64(from)
	step = int64((width-1)/uint64(n) + 1)
	points = make([]Point, (width-1)/uint64(step)+1)
	for at, v := range h.Samples(s, from, until) {
		if !math.IsNaN(v) {
			points[uint64(at-from)/uint64(step)].add(v)
		}
	}
	for i := range points {
		points[i].close()
	}
	return points, step
}

func (p *Point) add(v float64) {
	if p.Samples == 0 {
		p.Min, p.Max, p.Mean = v, v, 0
	}
	p.Samples++
	p.Min, p.Max = min(p.Min, v), max(p.Max, v)
	p.Mean += (v - p.Mean) / float64(p.Samples) // a sum could overflow
}

func (p *Point) close() {
	if p.Samples == 0 {
		p.Min, p.Max, p.Mean = math.NaN(), math.NaN(), math.NaN()
	}
}

// parts returns the encoded chunks of a series with samples from a time to before another. The open
// one is copied; the others do not change.
func (h *History) parts(s Series, from, until int64) (out [][]byte) {
	k := keyOf(s.Device, &collector.Column{Field: s.Field, Labels: s.Labels})
	k.buffered = s.Buffered
	h.mu.Lock()
	defer h.mu.Unlock()
	x := h.store.series[k]
	if x == nil {
		return nil
	}
	for _, c := range x.sealed {
		if c.until >= from && c.from < until {
			out = append(out, c.data)
		}
	}
	if x.open != nil && x.last >= from && x.from < until {
		out = append(out, slices.Clone(x.open.Bytes()))
	}
	return out
}

// decode returns the samples of a chunk.
func decode(data []byte) iter.Seq2[int64, float64] {
	return func(yield func(int64, float64) bool) {
		c := chunkenc.NewXORChunk()
		c.Reset(data)
		for i := c.Iterator(nil); i.Next() == chunkenc.ValFloat; {
			if at, v := i.At(); !yield(at, v) {
				return
			}
		}
	}
}
