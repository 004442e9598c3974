package history

import (
	"iter"
	"math"
	"slices"

	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Match selects series. Zero fields match everything.
type Match struct {
	Device string // device ID
	Field  field.ID
}

// Series identifies a series. Samples from a driver's buffer have their own times, so they form a
// series separate from the readings (see collector.Buffer).
type Series struct {
	Device   string            `json:"device"`
	Field    field.ID          `json:"field"`
	Labels   []collector.Label `json:"labels,omitempty"` // distinguish series of the same device and field; sorted by name
	Buffered bool              `json:"buffered,omitempty"`
	Last     int64             `json:"-"` // time of the newest sample, ms
}

// Load adds recorded samples to a series. Do not call Sync at the same time.
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

// Series returns the matching series, ordered by their first value.
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

// Samples returns the samples of a series in [from, until), in Unix ms, oldest first: ascending
// times (events can share one) and values, which are NaN for a blank reading. A device that was not
// sampled has no samples; an event has one for each occurrence. Samples added after the call are
// not included. An unknown series has none.
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

// Point summarises a series over a span of time.
type Point struct {
	Samples        int     // number of values; if it is 0, the other fields are NaN
	Min, Max, Mean float64 //
}

// Points divides [from, until) into at most n spans of whole milliseconds and returns a summary of
// each. It costs as much as reading all samples.
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
	p.Mean += (v - p.Mean) / float64(p.Samples) // a plain sum could overflow
}

func (p *Point) close() {
	if p.Samples == 0 {
		p.Min, p.Max, p.Mean = math.NaN(), math.NaN(), math.NaN()
	}
}

// parts returns the encoded chunks with samples in [from, until). It copies the open chunk; the
// others are immutable.
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
