package history

import (
	"iter"
	"slices"

	"github.com/prometheus/prometheus/tsdb/chunkenc"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/rows"
)

// Series implements rows.History.
func (h *History) Series(device string, reading field.ID) []rows.Series {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []rows.Series
	for _, x := range h.store.order {
		if (device == "" || device == x.device) && (reading == 0 || reading == x.field) {
			out = append(out, rows.Series{Device: x.device, Field: x.field, Labels: x.labels, Buffered: x.buffered, Last: x.last})
		}
	}
	return out
}

// Samples implements rows.History. A device that was not sampled has no samples; an event has one for each occurrence.
// Samples added after the call are not included.
func (h *History) Samples(s rows.Series, from, until int64) iter.Seq2[int64, float64] {
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

// parts returns the encoded chunks with samples in [from, until). It copies the open chunk; the others are immutable.
func (h *History) parts(s rows.Series, from, until int64) (out [][]byte) {
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
