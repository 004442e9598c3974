package exposition

import (
	"math"
	"strconv"

	"warpgauge/pkg/field"
)

// appendText appends all families in one of the two line-based formats. They differ in their head lines and
// in the form of bucket bounds.
func (l *layout) appendText(b []byte, d dialect, s *snapshot) []byte {
	for _, f := range l.families {
		b = f.appendText(b, d, s)
	}
	return b
}

// appendText appends the family, or nothing if it has no sample now.
func (f *family) appendText(b []byte, d dialect, s *snapshot) []byte {
	start := len(b)
	b = append(b, f.head[d]...)
	samples := len(b)
	b = f.appendSamples(b, s)
	b = f.appendXIDs(b, s)
	b = f.appendHistograms(b, d, s)
	if len(b) == samples {
		return b[:start]
	}
	return b
}

func (f *family) appendSamples(b []byte, s *snapshot) []byte {
	for i := range f.samples {
		c := &f.samples[i]
		v := *c.value
		if v != v || !s.live[c.device] { // blank, or the device is stale
			continue
		}
		b = append(b, f.name...)
		b = append(b, c.labels.text[0]...)
		b = appendValue(b, c.scale.Of(v))
		b = append(b, '\n')
	}
	return b
}

func (f *family) appendXIDs(b []byte, s *snapshot) []byte {
	for i := range f.xids {
		c := &f.xids[i]
		v := *c.value
		if v != v || !s.live[c.device] {
			continue
		}
		b = append(b, f.name...)
		b = c.labels.appendXID(b, v)
		b = appendValue(b, c.scale.Of(v))
		b = append(b, '\n')
	}
	return b
}

// appendXID appends the labels of a series whose value is the code of an XID.
func (s *labelSet) appendXID(b []byte, code float64) []byte {
	b = append(b, s.text[0]...)
	b = append(b, errCode+`="`...)
	b = appendValue(b, code)
	b = append(b, '"')
	b = append(b, s.text[1]...)
	b = append(b, errMsg+"="...)
	b = appendLabelValue(b, xidText(code))
	return append(b, s.text[2]...)
}

func (f *family) appendHistograms(b []byte, d dialect, s *snapshot) []byte {
	for i := range f.histograms {
		c := &f.histograms[i]
		if c.state.Count == 0 || !s.live[c.device] {
			continue
		}
		b = f.appendBuckets(b, c, c.bounds[d])
		b = append(b, f.name...)
		b = append(b, "_sum"...)
		b = append(b, c.labels.text[0]...)
		b = appendValue(b, c.state.Sum)
		b = append(b, '\n')
		b = append(b, f.name...)
		b = append(b, "_count"...)
		b = append(b, c.labels.text[0]...)
		b = strconv.AppendUint(b, c.state.Count, 10)
		b = append(b, '\n')
	}
	return b
}

func (f *family) appendBuckets(b []byte, c *histogramSeries, bounds []string) []byte {
	labels := c.labels.text[0] // `{a="b"} ` becomes `{a="b",` and ` ` becomes `{`
	opening, comma := []byte{'{'}, false
	if len(c.labels.pairs) > 0 {
		opening, comma = labels[:len(labels)-len("} ")], true
	}
	below := uint64(0)
	for i := range bounds {
		below += c.state.Counts[i]
		b = append(b, f.name...)
		b = append(b, "_bucket"...)
		b = append(b, opening...)
		if comma {
			b = append(b, ',')
		}
		b = append(b, bounds[i]...)
		b = strconv.AppendUint(b, below, 10)
		b = append(b, '\n')
	}
	return b
}

// xidText returns the text of an XID for label err_msg, without allocating.
func xidText(code float64) string {
	if math.Abs(code) > math.MaxInt32 {
		code = -1
	}
	return field.XIDText(int(code))
}

// appendValue appends a sample's value: an integer as decimal digits, any other number in the shortest form
// that reads back as the same float64, with an exponent only for numbers that are hard to read without one.
// All three text dialects of Prometheus can read it.
func appendValue(b []byte, v float64) []byte {
	const tooBigForInt64 = 1 << 63
	switch a := math.Abs(v); {
	case v == math.Trunc(v) && a < tooBigForInt64:
		return strconv.AppendInt(b, int64(v), 10)
	case a < 1e-6 || a >= 1e21:
		return strconv.AppendFloat(b, v, 'e', -1, 64) // also ±Inf
	}
	return strconv.AppendFloat(b, v, 'f', -1, 64) // also NaN
}

// appendBound appends a bucket's upper bound in the form of text 0.0.4, as client_golang does: 1, 0.25, 1e+06.
func appendBound(b []byte, v float64) []byte {
	if math.IsInf(v, 1) {
		return append(b, "+Inf"...)
	}
	return strconv.AppendFloat(b, v, 'g', -1, 64)
}

// appendCanonicalBound appends a bucket's upper bound in the form of OpenMetrics, recognisable as a float: 1.0, 0.25, 1e+06.
func appendCanonicalBound(b []byte, v float64) []byte {
	start := len(b)
	b = appendBound(b, v)
	for _, c := range b[start:] {
		switch c {
		case '.', 'e', 'I', 'N':
			return b
		}
	}
	return append(b, '.', '0')
}
