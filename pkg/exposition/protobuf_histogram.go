package exposition

import (
	"google.golang.org/protobuf/encoding/protowire"

	"warpgauge/pkg/accumulate"
)

// Field numbers of Histogram and its parts.
const (
	histogramCount         = 1
	histogramSum           = 2
	histogramBucket        = 3
	histogramSchema        = 5
	histogramZeroThreshold = 6
	histogramZeroCount     = 7
	histogramSpan          = 12
	histogramDelta         = 13

	bucketCumulative = 1
	bucketBound      = 2

	spanOffset = 1
	spanLength = 2
)

// maxGap is how many empty buckets a span of native buckets may bridge: a delta
// for an empty bucket is a byte or two, a new span four to six.
const maxGap = 2

// appendHistogramMetric appends a Metric with classic and native buckets; a
// scraper takes those that it is configured for.
func appendHistogramMetric(b []byte, c *histogramSeries) []byte {
	b, metric := openMessage(protowire.AppendTag(b, familyMetric, protowire.BytesType))
	b = append(b, c.labels.proto[0]...)
	b, body := openMessage(protowire.AppendTag(b, metricHistogram, protowire.BytesType))
	b = appendUint(b, histogramCount, c.state.Count)
	b = appendDouble(b, histogramSum, c.state.Sum)
	b = appendClassicBuckets(b, c.state)
	if len(c.state.Positive) > 0 {
		b = appendNativeBuckets(b, c.state)
	}
	b = closeMessage(b, body)
	return closeMessage(b, metric)
}

// appendClassicBuckets leaves the bucket for +Inf out, as client_golang does:
// its count is that of the histogram.
func appendClassicBuckets(b []byte, h *accumulate.Histogram) []byte {
	below := uint64(0)
	for i, bound := range h.Bounds {
		below += h.Counts[i]
		size := protowire.SizeTag(bucketCumulative) + protowire.SizeVarint(below) + protowire.SizeTag(bucketBound) + 8
		b = protowire.AppendTag(b, histogramBucket, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(size))
		b = appendUint(b, bucketCumulative, below)
		b = appendDouble(b, bucketBound, bound)
	}
	return b
}

func appendNativeBuckets(b []byte, h *accumulate.Histogram) []byte {
	b = appendSint(b, histogramSchema, int64(h.Schema))
	b = appendDouble(b, histogramZeroThreshold, h.ZeroThreshold)
	b = appendUint(b, histogramZeroCount, h.ZeroCount)

	end := -int(h.First) // so that the first offset is the bucket's index itself
	for from, to := nextSpan(h.Positive, 0); from < to; from, to = nextSpan(h.Positive, to) {
		b = appendSpan(b, from-end, to-from)
		end = to
	}
	last := int64(0)
	for from, to := nextSpan(h.Positive, 0); from < to; from, to = nextSpan(h.Positive, to) {
		for _, n := range h.Positive[from:to] {
			b = appendSint(b, histogramDelta, int64(n)-last)
			last = int64(n)
		}
	}
	return b
}

func appendSpan(b []byte, offset, length int) []byte {
	b, start := openMessage(protowire.AppendTag(b, histogramSpan, protowire.BytesType))
	b = appendSint(b, spanOffset, int64(offset))
	b = appendUint(b, spanLength, uint64(length))
	return closeMessage(b, start)
}

// nextSpan returns the first run of buckets at or after i that begins and ends
// with a count and bridges gaps of at most maxGap. It is empty if there is none.
func nextSpan(counts []uint64, i int) (from, to int) {
	for i < len(counts) && counts[i] == 0 {
		i++
	}
	from, to = i, i
	for ; i < len(counts) && i-to <= maxGap; i++ {
		if counts[i] != 0 {
			to = i + 1
		}
	}
	return from, to
}
