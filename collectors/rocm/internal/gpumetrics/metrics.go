package gpumetrics

import (
	"encoding/binary"
	"math"
)

// words is the sum of Len over all fields.
const words = 949

// Metrics is what one file said. The zero value has nothing.
type Metrics struct {
	words  [words]uint64
	layout *layout // nil: nothing is available
	filled *layout // whose members are in words
	start  *[fields + 1]uint16
}

// begin makes room for a file of a layout. What the layout does not have of an
// array's elements is not available.
func (m *Metrics) begin(d *Decoder, l *layout) {
	if m.filled != l {
		for i := range m.words {
			m.words[i] = NA
		}
	}
	m.layout, m.filled, m.start = l, l, &d.start
}

// Reset forgets everything: all values are not available.
func (m *Metrics) Reset() { m.layout = nil }

// read widens a row of members. All ones stay all ones.
func (m *Metrics) read(r run, file []byte) {
	to := m.words[r.word : int(r.word)+int(r.count)]
	from := file[r.offset : int(r.offset)+int(r.count)*int(r.width)]
	for i := range to {
		var v uint64
		switch r.width {
		case 1:
			v = widen(uint64(from[i]), math.MaxUint8)
		case 2:
			v = widen(uint64(binary.LittleEndian.Uint16(from[2*i:])), math.MaxUint16)
		case 4:
			v = widen(uint64(binary.LittleEndian.Uint32(from[4*i:])), math.MaxUint32)
		default:
			v = binary.LittleEndian.Uint64(from[8*i:])
		}
		to[i] = v
	}
}

func widen(v, ones uint64) uint64 {
	if v == ones {
		return NA
	}
	return v
}

// Has reports whether the file's revision has the field at all, be its values
// available or not.
func (m *Metrics) Has(f Field) bool { return m.layout != nil && f < fields && m.layout.width[f] > 0 }

// Wraps reports whether the field is a counter of 32 bits in this revision.
func (m *Metrics) Wraps(f Field) bool { return m.Has(f) && m.layout.width[f] == 4 }

// Raw returns element i of the field as the file has it, NA if it has not.
func (m *Metrics) Raw(f Field, i int) uint64 {
	if !m.Has(f) || i < 0 || i >= int(m.start[f+1]-m.start[f]) {
		return NA
	}
	return m.words[int(m.start[f])+i]
}

// Float returns element i of the field in the field's unit, NaN if the file has it not.
func (m *Metrics) Float(f Field, i int) float64 {
	v := m.Raw(f, i)
	if v == NA {
		return math.NaN()
	}
	return float64(v) * m.layout.scale[f]
}
