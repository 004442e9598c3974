package accumulate

import (
	"math"
	"slices"
	"sort"

	"warpgauge/pkg/field"
)

// Histogram is the running state of one histogram series, in the unit of the series. Store.Sync writes it.
// Read it only between two Syncs, from the same goroutine (see Store).
//
// It counts milliseconds: a value counts for the time since the value before. After a missed tick the next value counts
// for both. So rate(sum)/rate(count) is the mean over time at any interval, and a share of count is a share of time.
// rate(count) is 1000 unless values were missing. The values are the cells of each row in which the device was sampled,
// new or kept from before. A source with the driver's buffer adds each buffered sample instead.
type Histogram struct {
	Count uint64  // ms; 0: the device has not given a value yet, leave the series out
	Sum   float64 // value × ms
	// Created is the start of the counted time, in Unix nanoseconds; 0 while Count is 0.
	Created int64

	Bounds []float64 // classic buckets: ascending upper bounds, without +Inf; shared, immutable
	Counts []uint64  // per bucket, not cumulative; len(Bounds)+1, the last is +Inf

	// Native buckets (Prometheus exponential histograms). Positive[i] counts values in the bucket with index First+i;
	// ZeroCount those ≤ ZeroThreshold, negative ones among them. The last bucket also counts values above the field's
	// plausible maximum. See nativeShapeOf for how they are chosen.
	Schema        int32
	ZeroThreshold float64
	ZeroCount     uint64
	First         int32
	Positive      []uint64

	reading field.ID // the observed reading, with its scale: see fits
	scale   float64
	rest    float64 // ms not counted yet, less than one
}

func newHistogram(f *field.Field) *Histogram {
	h := &Histogram{
		Bounds:  f.Buckets,
		Counts:  make([]uint64, len(f.Buckets)+1),
		reading: f.Desc.ID,
		scale:   f.Scale,
	}
	shape := nativeShapeOf(f.Desc.Max*f.Scale, f.Scale)
	h.Schema, h.ZeroThreshold, h.First = nativeSchema, shape.zeroThreshold, shape.first
	h.Positive = make([]uint64, shape.buckets)
	return h
}

// fits reports whether h has the buckets of f. A reload may change them; then the series starts again.
func (h *Histogram) fits(f *field.Field) bool {
	shape := nativeShapeOf(f.Desc.Max*f.Scale, f.Scale)
	return h.reading == f.Desc.ID && h.scale == f.Scale && slices.Equal(h.Bounds, f.Buckets) &&
		h.First == shape.first && len(h.Positive) == shape.buckets
}

// observe counts v, in the unit of the series, for the given milliseconds, and carries the rest below one. It
// ignores blanks, and infinities because Sum would stay infinite.
func (h *Histogram) observe(v, millis float64) {
	if v-v != 0 { // NaN or ±Inf, in one comparison
		return
	}
	whole := math.Floor(millis + h.rest)
	h.rest += millis - whole
	n := uint64(whole)
	h.Count += n
	h.Sum += v * whole
	h.Counts[sort.SearchFloat64s(h.Bounds, v)] += n // the first bound ≥ v
	if v <= h.ZeroThreshold {
		h.ZeroCount += n
		return
	}
	i := int(nativeIndex(v) - h.First)
	h.Positive[min(i, len(h.Positive)-1)] += n
}
