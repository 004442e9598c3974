package accumulate

import (
	"math"
	"slices"
	"sort"

	"warpgauge/pkg/field"
)

// Histogram is the running state of one histogram series, in the unit of the
// series. It is written by Store.Sync and must be read between two Syncs by the
// same goroutine (see Store).
//
// It counts milliseconds: a value stands for the time since the one before, so a tick
// that was missed makes the next value count for both, and rate(sum)/rate(count) is the
// mean over time whatever the interval and the source of the values, and a share of
// count is a share of time. rate(count) is 1000 unless values were missing. A value is
// the cell in each row in which the device was sampled, whether the cell was due or
// keeps its last value, or, if the source has the driver's buffer, each sample of that.
type Histogram struct {
	Count uint64  // ms; 0 if the device has not given a value yet: leave the series out
	Sum   float64 // value × ms
	// Created is when the time that is counted began, in Unix nanoseconds; 0 while Count is.
	Created int64

	Bounds []float64 // classic buckets: ascending upper bounds, without +Inf; shared, immutable
	Counts []uint64  // per bucket, not cumulative; len(Bounds)+1, the last is +Inf

	// Native buckets (Prometheus exponential histograms). Positive[i] counts
	// values in the bucket with index First+i; ZeroCount those ≤ ZeroThreshold,
	// negative ones among them. The last bucket also counts values above
	// the field's plausible maximum. See nativeShape for how they are chosen.
	Schema        int32
	ZeroThreshold float64
	ZeroCount     uint64
	First         int32
	Positive      []uint64

	reading field.ID // the observed reading, with its scale: see fits
	scale   float64
	rest    float64 // ms that were not counted yet, less than one
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

// observe counts v, in the unit of the series, for so many milliseconds, and carries the
// fraction of one over. A blank is not a value, and one infinity would make Sum
// infinite for ever: neither is counted.
func (h *Histogram) observe(v, millis float64) {
	if v-v != 0 { // NaN or ±Inf, in one comparison
		return
	}
	whole := math.Floor(millis + h.rest)
	h.rest += millis - whole
	n := uint64(whole)
	h.Count += n
	h.Sum += v * whole
	h.Counts[sort.SearchFloat64s(h.Bounds, v)] += n // the first bound that is not below v
	if v <= h.ZeroThreshold {
		h.ZeroCount += n
		return
	}
	i := int(nativeIndex(v, h.Schema) - h.First)
	h.Positive[min(i, len(h.Positive)-1)] += n
}
