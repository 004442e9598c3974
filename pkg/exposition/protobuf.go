package exposition

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"warpgauge/pkg/accumulate"
	"warpgauge/pkg/collector"
)

// Field numbers of io.prometheus.client (client_model, metrics.proto).
const (
	familyName   = 1
	familyHelp   = 2
	familyType   = 3
	familyMetric = 4

	labelName  = 1
	labelValue = 2

	metricLabel     = 1
	metricGauge     = 2
	metricCounter   = 3
	metricUntyped   = 5
	metricHistogram = 7

	valueValue = 1 // of Gauge, Counter and Untyped
)

// valueSize is the size of Gauge, Counter or Untyped in a Metric: tag and
// length, then tag and eight bytes.
const valueSize = 2 + 9

// appendProtobuf appends all families as length-delimited messages.
func (l *layout) appendProtobuf(b []byte, s *snapshot) []byte {
	if !l.encoded {
		l.encode()
	}
	for _, f := range l.families {
		b = f.appendProtobuf(b, s)
	}
	return b
}

// encode makes what only protobuf pages need, when the first one is wanted.
func (l *layout) encode() {
	for _, set := range l.sets {
		for i, part := range set.parts() {
			for _, p := range part {
				set.proto[i] = appendLabelPair(set.proto[i], p)
			}
		}
	}
	for _, f := range l.families {
		f.proto = appendString(nil, familyName, f.name)
		if f.help != "" {
			f.proto = appendString(f.proto, familyHelp, f.help)
		}
		f.proto = protowire.AppendTag(f.proto, familyType, protowire.VarintType)
		f.proto = protowire.AppendVarint(f.proto, f.kind.protobuf())
	}
	l.encoded = true
}

func appendLabelPair(b []byte, p collector.Label) []byte {
	b, start := openMessage(protowire.AppendTag(b, metricLabel, protowire.BytesType))
	b = appendString(b, labelName, p.Name)
	b = appendString(b, labelValue, p.Value)
	return closeMessage(b, start)
}

// appendProtobuf appends the family, or nothing if it has no sample now.
func (f *family) appendProtobuf(b []byte, s *snapshot) []byte {
	b, start := openMessage(b)
	b = append(b, f.proto...)
	samples := len(b)
	b = f.appendSampleMetrics(b, s)
	b = f.appendXIDMetrics(b, s)
	for i := range f.histograms {
		c := &f.histograms[i]
		if c.state.Count != 0 && s.live[c.device] {
			b = appendHistogramMetric(b, c)
		}
	}
	if len(b) == samples {
		return b[:start]
	}
	return closeMessage(b, start)
}

func (f *family) appendSampleMetrics(b []byte, s *snapshot) []byte {
	for i := range f.samples {
		c := &f.samples[i]
		if v := *c.value; v == v && s.live[c.device] {
			b = f.appendMetric(b, c.labels.proto[0], c.scale.Of(v))
		}
	}
	return b
}

func (f *family) appendMetric(b, labels []byte, v float64) []byte {
	b = protowire.AppendTag(b, familyMetric, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(len(labels)+valueSize))
	b = append(b, labels...)
	return f.kind.appendValueMessage(b, v)
}

func (f *family) appendXIDMetrics(b []byte, s *snapshot) []byte {
	for i := range f.xids {
		c := &f.xids[i]
		v := *c.value
		if v != v || !s.live[c.device] {
			continue
		}
		var start int
		b, start = openMessage(protowire.AppendTag(b, familyMetric, protowire.BytesType))
		b = append(b, c.labels.proto[0]...)
		b = appendErrCode(b, v)
		b = append(b, c.labels.proto[1]...)
		b = appendLabelPair(b, collector.Label{Name: errMsg, Value: xidText(v)})
		b = append(b, c.labels.proto[2]...)
		b = f.kind.appendValueMessage(b, c.scale.Of(v))
		b = closeMessage(b, start)
	}
	return b
}

func appendErrCode(b []byte, code float64) []byte {
	b, pair := openMessage(protowire.AppendTag(b, metricLabel, protowire.BytesType))
	b = appendString(b, labelName, errCode)
	b, value := openMessage(protowire.AppendTag(b, labelValue, protowire.BytesType))
	b = closeMessage(appendValue(b, code), value)
	return closeMessage(b, pair)
}

func (k kind) appendValueMessage(b []byte, v float64) []byte {
	b = protowire.AppendTag(b, k.metricField(), protowire.BytesType)
	b = append(b, valueSize-2)
	return appendDouble(b, valueValue, v)
}

func (k kind) metricField() protowire.Number {
	switch k {
	case gauge:
		return metricGauge
	case counter:
		return metricCounter
	}
	return metricUntyped
}

// protobuf returns the number of the type in MetricType.
func (k kind) protobuf() uint64 {
	return [...]uint64{counter: 0, gauge: 1, untyped: 3, histogram: 4}[k]
}

// messageRoom is how many bytes openMessage keeps for a length: enough for a
// message of 2^35 bytes.
const messageRoom = 5

// openMessage begins a message whose length is not known yet, after its tag if
// it has one; closeMessage puts the length before it and closes the gap.
func openMessage(b []byte) (out []byte, start int) {
	return append(b, make([]byte, messageRoom)...), len(b)
}

func closeMessage(b []byte, start int) []byte {
	body := b[start+messageRoom:]
	head := protowire.AppendVarint(b[:start], uint64(len(body)))
	return append(head, body...) // moves down, within the same array
}

func appendString(b []byte, field protowire.Number, s string) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return protowire.AppendString(b, s)
}

func appendDouble(b []byte, field protowire.Number, v float64) []byte {
	b = protowire.AppendTag(b, field, protowire.Fixed64Type)
	return protowire.AppendFixed64(b, math.Float64bits(v))
}

func appendUint(b []byte, field protowire.Number, v uint64) []byte {
	b = protowire.AppendTag(b, field, protowire.VarintType)
	return protowire.AppendVarint(b, v)
}

func appendSint(b []byte, field protowire.Number, v int64) []byte {
	return appendUint(b, field, protowire.EncodeZigZag(v))
}

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
