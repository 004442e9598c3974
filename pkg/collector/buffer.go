package collector

import (
	"cmp"
	"math"
	"time"

	"warpgauge/pkg/field"
)

// Some drivers sample a reading faster than we read it and buffer the samples. A source that can read the buffer has,
// next to the reading's column, a block of columns with the samples since its last row, oldest first. A sample is a pair
// of the value, in the field's unit, and the milliseconds it applies to. Only histograms use the block, so that they
// include bursts between two rows.

// A row has room for the driver's samples per interval and some more. Interval 0 means the session's interval, assumed to
// be one second. Excess samples are merged.
const (
	spareSamples = 3
	maxSamples   = 64
)

// maxSampleGap is the maximum time between two samples that the second sample covers. The slowest known rate is one per
// second (power of an idle board: 119 samples in 117.96 s). After a longer gap, for example an overflow of the buffer,
// the value before the sample is unknown.
const maxSampleGap = 1500 * time.Millisecond

// Buffer writes each sample of a driver's buffer to one row.
type Buffer struct {
	last   int64 // timestamp of the newest added sample, µs
	n      int
	values []float64
	millis []float64
}

// NewBuffer returns a Buffer for about perSecond samples, read once per interval.
func NewBuffer(perSecond float64, interval time.Duration) *Buffer {
	n := int(cmp.Or(interval, time.Second).Seconds()*perSecond) + spareSamples
	n = min(n, maxSamples)
	return &Buffer{values: make([]float64, n), millis: make([]float64, n)}
}

// Width returns the number of columns in the block.
func (b *Buffer) Width() int { return 2 * len(b.values) }

// AppendColumns appends the block of a device's field.
func (b *Buffer) AppendColumns(to []Column, device int, id field.ID) []Column {
	for i := range b.Width() {
		to = append(to, Column{Device: device, Field: id, Buffer: i + 1})
	}
	return to
}

// Last returns the timestamp of the newest sample, or 0 before the first.
func (b *Buffer) Last() int64 { return b.last }

// Start drops all samples and begins at stamp: the next sample covers the time since stamp.
func (b *Buffer) Start(stamp int64) { b.last, b.n = stamp, 0 }

// Add adds the next sample, in the order of timestamps (µs). It ignores a sample that is not newer than the last. The
// first sample, a sample after a gap and a NaN add no value, because the value until then is unknown; they mark the
// start of the next sample's time.
func (b *Buffer) Add(stamp int64, value float64) {
	d := stamp - b.last
	if d <= 0 {
		return
	}
	began := b.last
	b.last = stamp
	if began == 0 || d > maxSampleGap.Microseconds() || math.IsNaN(value) {
		return
	}
	ms := float64(d) / 1e3
	if b.n > 0 && b.values[b.n-1] == value {
		b.millis[b.n-1] += ms
		return
	}
	if b.n == len(b.values) {
		b.halve()
	}
	b.values[b.n], b.millis[b.n] = value, ms
	b.n++
}

// halve makes room by replacing each pair of neighbours by their mean.
func (b *Buffer) halve() {
	for i := range b.n / 2 {
		x, y := 2*i, 2*i+1
		ms := b.millis[x] + b.millis[y]
		b.values[i] = (b.values[x]*b.millis[x] + b.values[y]*b.millis[y]) / ms
		b.millis[i] = ms
	}
	odd := b.n % 2
	if b.n /= 2; odd == 1 {
		b.values[b.n], b.millis[b.n] = b.values[2*b.n], b.millis[2*b.n]
		b.n++
	}
}

// Put writes the samples since the last Put into a block and blanks the rest of it. Shape: len(block) = Width().
func (b *Buffer) Put(block []float64) {
	for i := range b.n {
		block[2*i], block[2*i+1] = b.values[i], b.millis[i]
	}
	fill(block[2*b.n:])
	b.n = 0
}
