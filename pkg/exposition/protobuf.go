package exposition

import (
	"fmt"
	"math"
	"time"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

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

	valueValue     = 1 // of Gauge, Counter and Untyped
	counterCreated = 3

	seconds = 1 // of google.protobuf.Timestamp
	nanos   = 2
)

// valueSize is the size of Gauge, Counter or Untyped in a Metric: tag and length, then tag and eight bytes.
const valueSize = 2 + 9

func (l *layout) appendProtobuf(b []byte, s *snapshot) []byte {
	if !l.encoded {
		l.encode()
	}
	for _, f := range l.families {
		b = f.appendProtobuf(b, s)
	}
	return b
}

// encode makes the parts that only protobuf pages need, for the first such page.
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
		f.proto = protowire.AppendVarint(f.proto, [...]uint64{counter: 0, gauge: 1, untyped: 3, histogram: 4}[f.kind]) // in MetricType
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
			if f.kind == counter && c.created != nil && *c.created != 0 {
				b = appendCountMetric(b, c.labels.proto[0], c.scale.Of(v), *c.created)
			} else {
				labels := c.labels.proto[0]
				b = protowire.AppendTag(b, familyMetric, protowire.BytesType)
				b = protowire.AppendVarint(b, uint64(len(labels)+valueSize))
				b = append(b, labels...)
				b = f.kind.appendValueMessage(b, c.scale.Of(v))
			}
		}
	}
	return b
}

// appendCountMetric appends a counter with its start time in Unix ns.
func appendCountMetric(b, labels []byte, v float64, created int64) []byte {
	b, metric := openMessage(protowire.AppendTag(b, familyMetric, protowire.BytesType))
	b = append(b, labels...)
	b, body := openMessage(protowire.AppendTag(b, metricCounter, protowire.BytesType))
	b = appendDouble(b, valueValue, v)
	b, at := openMessage(protowire.AppendTag(b, counterCreated, protowire.BytesType))
	b = protowire.AppendVarint(protowire.AppendTag(b, seconds, protowire.VarintType), uint64(created/int64(time.Second)))
	b = protowire.AppendVarint(protowire.AppendTag(b, nanos, protowire.VarintType), uint64(created%int64(time.Second)))
	return closeMessage(closeMessage(closeMessage(b, at), body), metric)
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
	b = protowire.AppendTag(b, metricFields[k], protowire.BytesType)
	b = append(b, valueSize-2)
	return appendDouble(b, valueValue, v)
}

// metricFields has the field of Metric for the value of a kind.
var metricFields = [...]protowire.Number{gauge: metricGauge, counter: metricCounter, untyped: metricUntyped}

// messageRoom is how many bytes openMessage keeps for a length: enough for a message of 2^35 bytes.
const messageRoom = 5

// openMessage begins a message of unknown length, after its tag if it has one. closeMessage writes the length
// before it and closes the gap.
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

// maxGap is how many empty buckets a span of native buckets may bridge: a delta
// for an empty bucket is a byte or two, a new span four to six.
const maxGap = 2

// appendHistogramMetric appends a Metric with classic and native buckets; a scraper uses the kind that it is
// configured for. Histograms are few, so client_model's messages are fast enough.
func appendHistogramMetric(b []byte, c *histogramSeries) []byte {
	b, metric := openMessage(protowire.AppendTag(b, familyMetric, protowire.BytesType))
	b = append(b, c.labels.proto[0]...)
	b, body := openMessage(protowire.AppendTag(b, metricHistogram, protowire.BytesType))
	b, err := proto.MarshalOptions{}.MarshalAppend(b, histogramMessage(c.state))
	if err != nil {
		panic(fmt.Sprintf("exposition: encode histogram: %v", err)) // there is no string in it
	}
	b = closeMessage(b, body)
	return closeMessage(b, metric)
}

func histogramMessage(h *accumulate.Histogram) *dto.Histogram {
	m := &dto.Histogram{SampleCount: &h.Count, SampleSum: &h.Sum}
	if h.Created != 0 {
		m.CreatedTimestamp = timestamppb.New(time.Unix(0, h.Created))
	}
	below := uint64(0)
	for i, bound := range h.Bounds { // without +Inf, as in client_golang: the histogram's count covers it
		below += h.Counts[i]
		m.Bucket = append(m.Bucket, &dto.Bucket{CumulativeCount: proto.Uint64(below), UpperBound: proto.Float64(bound)})
	}
	if len(h.Positive) == 0 {
		return m
	}
	m.Schema, m.ZeroThreshold, m.ZeroCount = &h.Schema, &h.ZeroThreshold, &h.ZeroCount
	end := -int(h.First) // so that the first offset is the bucket's index itself
	last := int64(0)
	for from, to := nextSpan(h.Positive, 0); from < to; from, to = nextSpan(h.Positive, to) {
		m.PositiveSpan = append(m.PositiveSpan, &dto.BucketSpan{Offset: proto.Int32(int32(from - end)), Length: proto.Uint32(uint32(to - from))})
		for _, n := range h.Positive[from:to] {
			m.PositiveDelta = append(m.PositiveDelta, int64(n)-last)
			last = int64(n)
		}
		end = to
	}
	return m
}

// nextSpan returns the first run of buckets at or after i that begins and ends with a count and has gaps of
// at most maxGap, or an empty run.
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
