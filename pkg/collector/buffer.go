package collector

import (
	"cmp"
	"math"
	"time"

	"warpgauge/pkg/field"
)

// A driver that samples a reading more often than it is asked keeps the samples in a
// buffer. A source that can read it has, next to the column of the reading, a block of
// columns with the samples since its last row, oldest first: pairs of the value, in the
// field's unit, and of the milliseconds that it stands for. Histograms are made of the
// block if there is one, so that a burst between two rows is in them; nothing else
// uses it.

// The room for samples in a row: what a driver makes in an interval (0: that of the
// session, which is taken for a second) and some more. What does not fit is merged.
const (
	spareSamples = 3
	mostSamples  = 64
)

// maxSampleGap is how far apart two samples of a buffer can be, so that the time
// between them counts as the second one's. The slowest pace seen is a second (power of
// an idle board: 119 samples in 117.96 s). After a longer gap, because the buffer has
// overflowed, say, it is not known what was before the first sample.
const maxSampleGap = 1500 * time.Millisecond

// Buffer puts each sample of a driver's buffer once into a row.
type Buffer struct {
	last   int64 // stamp of the newest sample that was added, µs
	n      int
	values []float64
	millis []float64
}

// NewBuffer returns a Buffer for the samples that come at about this pace, read once in
// an interval.
func NewBuffer(perSecond float64, interval time.Duration) *Buffer {
	n := int(cmp.Or(interval, time.Second).Seconds()*perSecond) + spareSamples
	n = min(n, mostSamples)
	return &Buffer{values: make([]float64, n), millis: make([]float64, n)}
}

// Width is how many columns the block has.
func (b *Buffer) Width() int { return 2 * len(b.values) }

// AppendColumns appends the block of a device's field.
func (b *Buffer) AppendColumns(to []Column, device int, id field.ID) []Column {
	for i := range b.Width() {
		to = append(to, Column{Device: device, Field: id, Buffer: i + 1})
	}
	return to
}

// Last returns the stamp of the newest sample, 0 before the first.
func (b *Buffer) Last() int64 { return b.last }

// Start forgets what was added and begins at stamp: the first sample after it stands
// for the time since then.
func (b *Buffer) Start(stamp int64) { b.last, b.n = stamp, 0 }

// Add takes the next sample, in the order of their stamps (µs). One that is not newer
// than the last was there before. The first of all, and one after a gap, only begins:
// the time before it is unknown. So does a value that is NaN, for the time up to it.
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

// halve makes room: each two neighbours become their mean.
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

// Put writes the samples since the last Put into a block, and blanks the rest of it.
// Shape: len(block) = Width().
func (b *Buffer) Put(block []float64) {
	for i := range b.n {
		block[2*i], block[2*i+1] = b.values[i], b.millis[i]
	}
	fill(block[2*b.n:])
	b.n = 0
}
