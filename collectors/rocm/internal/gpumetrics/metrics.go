package gpumetrics

import (
	"encoding/binary"
	"math"
)

// layout is one revision's structure.
type layout struct {
	format, content uint8
	size            int
	runs            []run
	scale           [fields]float64
	width           [fields]uint8 // bytes; 0: the revision lacks the field
	listed          bool          // the file is a list of attributes: no runs, no widths
}

// run is a row of members of one width that are adjacent in Metrics, too.
type run struct {
	offset uint16 // in the file
	word   uint16 // in Metrics
	count  uint8
	width  uint8
}

// builder places members one after the other, each aligned to its width, as C compilers do on every machine that amdgpu
// runs on.
type builder struct {
	l     layout
	at    int
	start *[fields + 1]uint16
}

const headerSize = 4

func newBuilder(start *[fields + 1]uint16, format, content uint8) *builder {
	b := &builder{l: layout{format: format, content: content}, at: headerSize, start: start}
	for i := range b.l.scale {
		b.l.scale[i] = 1
	}
	return b
}

// put adds an array of count members, which becomes elements first… of the field.
func (b *builder) put(width, count int, f Field, first int) {
	b.at = (b.at + width - 1) &^ (width - 1)
	if f != none {
		if first+count > f.Len() {
			panic("gpumetrics: more members than the field has")
		}
		b.l.runs = append(b.l.runs, run{
			offset: uint16(b.at), word: b.start[f] + uint16(first), count: uint8(count), width: uint8(width),
		})
		b.l.width[f] = uint8(width)
	}
	b.at += width * count
}

func (b *builder) each(width int, list []Field) {
	for _, f := range list {
		b.put(width, 1, f, 0)
	}
}

func (b *builder) u8(list ...Field)      { b.each(1, list) }
func (b *builder) u16(list ...Field)     { b.each(2, list) }
func (b *builder) u32(list ...Field)     { b.each(4, list) }
func (b *builder) u64(list ...Field)     { b.each(8, list) }
func (b *builder) u16s(n int, f Field)   { b.put(2, n, f, 0) }
func (b *builder) u64s(n int, f Field)   { b.put(8, n, f, 0) }
func (b *builder) skip(width, count int) { b.put(width, count, none, 0) }

// unit sets the factor for the number in the file.
func (b *builder) unit(scale float64, list ...Field) {
	for _, f := range list {
		b.l.scale[f] = scale
	}
}

// words is the sum of Len over all fields.
const words = 956

// Metrics is one decoded file. The zero value is empty.
type Metrics struct {
	words   [words]uint64
	width   [fields]uint8 // bytes of a member; 0: the file lacks the field
	layout  *layout       // nil: nothing is available
	filled  *layout       // the layout whose members are in words
	start   *[fields + 1]uint16
	unknown int
	unread  [16]uint64 // words of the first of these attributes
}

// begin prepares m for a file of a layout. Elements that the layout lacks are not available. Each list may have other
// elements.
func (m *Metrics) begin(d *Decoder, l *layout) {
	if m.filled != l || l.listed {
		m.blank(0, words)
	}
	m.layout, m.filled, m.start, m.width, m.unknown = l, l, &d.start, l.width, 0
}

func (m *Metrics) blank(from, to uint16) {
	for i := from; i < to; i++ {
		m.words[i] = NA
	}
}

// Reset makes all values not available.
func (m *Metrics) Reset() { m.layout, m.unknown = nil, 0 }

// Unknown returns how many attributes of the file were not decoded, or only in part.
func (m *Metrics) Unknown() int { return m.unknown }

// Listed reports whether the file is a list of attributes. Then partitions have their own files.
func (m *Metrics) Listed() bool { return m.layout != nil && m.layout.listed }

// widenRun stores a row of members as 64-bit words. All bits set stays all bits set.
func (m *Metrics) widenRun(r run, file []byte) {
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

// Has reports whether the file's revision has the field, even if its values are not available.
func (m *Metrics) Has(f Field) bool { return m.layout != nil && f < fields && m.width[f] > 0 }

// Wraps reports whether the field is a 32-bit counter in this revision.
func (m *Metrics) Wraps(f Field) bool { return m.Has(f) && m.width[f] == 4 }

// Raw returns element i of the field as stored in the file, NA if not available.
func (m *Metrics) Raw(f Field, i int) uint64 {
	if !m.Has(f) || i < 0 || i >= int(m.start[f+1]-m.start[f]) {
		return NA
	}
	return m.words[int(m.start[f])+i]
}

// Float returns element i of the field in the field's unit, NaN if not available.
func (m *Metrics) Float(f Field, i int) float64 {
	v := m.Raw(f, i)
	if v == NA {
		return math.NaN()
	}
	return float64(v) * m.layout.scale[f]
}
