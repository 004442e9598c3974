package accumulate

import (
	"slices"
	"sort"

	"warpgauge/pkg/field"
)

// Histogram is the running state of one histogram series, in the unit of the
// series. It is written by Store.Sync and must be read between two Syncs by the
// same goroutine (see Store).
//
// Every row in which the device was sampled is one observation of the value
// that the cell then holds, whether the cell itself was due on that tick or
// keeps its last value. A series is thus weighted by time, as the gauge of the
// same field is: rate(sum)/rate(count) is the mean over time, and a share of
// count is a share of time, whatever the interval of the field.
type Histogram struct {
	Count uint64 // 0 if the device has not given a value yet: leave the series out
	Sum   float64

	Bounds []float64 // classic buckets: ascending upper bounds, without +Inf; shared, immutable
	Counts []uint64  // per bucket, not cumulative; len(Bounds)+1, the last is +Inf

	// Native buckets (Prometheus exponential histograms). Positive[i] counts
	// values in the bucket with index First+i; ZeroCount those ≤ ZeroThreshold,
	// negative ones among them. The last bucket also holds what is greater than
	// the field's plausible maximum. See nativeShape for how they are chosen.
	Schema        int32
	ZeroThreshold float64
	ZeroCount     uint64
	First         int32
	Positive      []uint64

	reading field.ID // what is observed, with its scale: see fits
	scale   float64
}

func newHistogram(f *field.Field) *Histogram {
	h := &Histogram{
		Bounds:  f.Buckets,
		Counts:  make([]uint64, len(f.Buckets)+1),
		reading: f.Desc.ID,
		scale:   f.Scale,
	}
	shape := nativeShapeOf(f.Desc.Max*f.Scale, f.Scale)
	h.Schema, h.ZeroThreshold, h.First = shape.schema, shape.zeroThreshold, shape.first
	h.Positive = make([]uint64, shape.buckets)
	return h
}

// fits reports whether h counts what f asks for. After a reload that changed
// the buckets it does not, and the series starts again.
func (h *Histogram) fits(f *field.Field) bool {
	shape := nativeShapeOf(f.Desc.Max*f.Scale, f.Scale)
	return h.reading == f.Desc.ID && h.scale == f.Scale && slices.Equal(h.Bounds, f.Buckets) &&
		h.Schema == shape.schema && h.First == shape.first && len(h.Positive) == shape.buckets
}

// observe counts v, in the unit of the series. A blank is not a value, and one
// infinity would make Sum infinite for ever: neither is counted.
func (h *Histogram) observe(v float64) {
	if v-v != 0 { // NaN or ±Inf, in one comparison
		return
	}
	h.Count++
	h.Sum += v
	h.Counts[sort.SearchFloat64s(h.Bounds, v)]++ // the first bound that is not below v
	if v <= h.ZeroThreshold {
		h.ZeroCount++
		return
	}
	i := int(nativeIndex(v, h.Schema) - h.First)
	h.Positive[min(i, len(h.Positive)-1)]++
}
