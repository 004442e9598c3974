package exposition

import (
	"math"
	"strconv"
)

// appendText appends all families in one of the two line-based formats. They
// differ in their head lines and in how bounds of buckets are written.
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
	b = f.appendCells(b, s)
	b = f.appendShares(b, s)
	b = f.appendXIDs(b, s)
	b = f.appendValues(b, s)
	b = f.appendHistograms(b, d, s)
	if len(b) == samples {
		return b[:start]
	}
	return b
}

func (f *family) appendCells(b []byte, s *snapshot) []byte {
	for i := range f.cells {
		c := &f.cells[i]
		v := s.cells[c.cell]
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

func (f *family) appendShares(b []byte, s *snapshot) []byte {
	for i := range f.shares {
		c := &f.shares[i]
		v := s.shares[c.value]
		if v != v || !s.live[c.device] {
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
		v := s.cells[c.cell]
		if v != v || !s.live[c.device] {
			continue
		}
		b = append(b, f.name...)
		b = append(b, c.labels.text[0]...)
		b = append(b, errCode+`="`...)
		b = appendValue(b, v)
		b = append(b, '"')
		b = append(b, c.labels.text[1]...)
		b = append(b, errMsg+"="...)
		b = appendLabelValue(b, xidText(v))
		b = append(b, c.labels.text[2]...)
		b = appendValue(b, c.scale.Of(v))
		b = append(b, '\n')
	}
	return b
}

func (f *family) appendValues(b []byte, s *snapshot) []byte {
	for i := range f.values {
		c := &f.values[i]
		if math.IsNaN(*c.value) || !s.live[c.device] {
			continue
		}
		b = append(b, f.name...)
		b = append(b, c.labels.text[0]...)
		b = appendValue(b, *c.value)
		b = append(b, '\n')
	}
	return b
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
