// Package gpumetrics decodes the amdgpu driver's gpu_metrics file, which holds the firmware's measurements. Up to
// revision 1.8 the file is one binary structure, whose layout depends on the revision in its header. Unknown revisions
// are refused, because members move between revisions. From 1.9 on it is a list of self-describing attributes: unknown
// ones are counted and skipped.
//
// Package sysfs calls it and shares one immutable Decoder among all GPUs; each GPU has its own Metrics, which one
// goroutine at a time may use. Decoding allocates nothing and starts no goroutine.
package gpumetrics

import (
	"encoding/binary"
	"errors"
	"math"
)

// Errors of Decode. After an error no value of Metrics is available.
var (
	ErrShort    = errors.New("gpu_metrics is shorter than its header says")
	ErrRevision = errors.New("unknown revision of gpu_metrics")
)

// NA is a value that the firmware does not have: all bits set, in any width.
const NA = math.MaxUint64

// Header is the start of a file.
type Header struct {
	Size            uint16
	Format, Content uint8 // revision Format.Content
}

// ReadHeader returns the header of a file.
func ReadHeader(file []byte) (Header, error) {
	if len(file) < headerSize {
		return Header{}, ErrShort
	}
	return Header{Size: binary.LittleEndian.Uint16(file), Format: file[2], Content: file[3]}, nil
}

// Decoder knows the layouts.
type Decoder struct {
	layouts []layout
	list    layout             // of 1.9
	start   [fields + 1]uint16 // first word of each field in Metrics
}

// New returns a Decoder of revisions 1.0 to 1.9 (boards), 2.0 to 2.4 and 3.0
// (APUs), and of revision 1.1 of a partition's file.
func New() *Decoder {
	d := &Decoder{}
	for f := range fields {
		d.start[f+1] = d.start[f] + uint16(f.Len())
	}
	if int(d.start[fields]) != words {
		panic("gpumetrics: words is not the sum of all lengths")
	}
	add := func(format, content uint8, members func(b *builder)) {
		b := newBuilder(&d.start, format, content)
		members(b)
		b.l.size = (b.at + 7) &^ 7 // a multiple of its widest member's, eight bytes in every revision
		d.layouts = append(d.layouts, b.l)
	}
	add(1, 0, v10)
	for c, members := range []func(*builder, uint8){1: v11, 2: v11, 3: v11, 4: v14, 5: v14, 6: v16, 7: v16, 8: v16} {
		if members != nil {
			add(1, uint8(c), func(b *builder) { members(b, uint8(c)) })
		}
	}
	for c := range uint8(5) {
		add(2, c, func(b *builder) { v20(b, c) })
	}
	add(3, 0, v30)
	list := newBuilder(&d.start, 1, 9)
	list.unit(0.1, PCIeLinkSpeed)
	d.list = list.l
	d.list.listed = true
	return d
}

// find returns the layout of a header, nil if there is none. The size is compared, too, because a driver that changes a
// structure changes its size.
func (d *Decoder) find(h Header) *layout {
	for i := range d.layouts {
		l := &d.layouts[i]
		if l.format == h.Format && l.content == h.Content && l.size == int(h.Size) {
			return l
		}
	}
	return nil
}

// Decode reads a file into m. It ignores bytes beyond the size in the header.
func (d *Decoder) Decode(file []byte, m *Metrics) error {
	m.Reset()
	file, h, err := whole(file)
	if err != nil {
		return err
	}
	switch l := d.find(h); {
	case h.Format == d.list.format && h.Content == d.list.content:
		m.begin(d, &d.list)
		// The file has the sum over all partitions, which is stored as the first partition.
		if err := m.attributes(file, 0, func(Field) bool { return true }); err != nil {
			m.Reset()
			return err
		}
	case l == nil:
		return ErrRevision
	default:
		m.begin(d, l)
		for _, r := range l.runs {
			m.widenRun(r, file)
		}
	}
	m.clean()
	return nil
}

// whole cuts a file to the size in its header.
func whole(file []byte) ([]byte, Header, error) {
	h, err := ReadHeader(file)
	if err == nil && int(h.Size) > len(file) {
		err = ErrShort
	}
	if err != nil {
		return nil, h, err
	}
	return file[:h.Size], h, nil
}

// clean removes values that only look valid.
func (m *Metrics) clean() {
	at := func(f Field) *uint64 { return &m.words[m.start[f]] }
	// For boards without an energy counter, drivers store 32 set bits in a 64-bit member (UINT_MAX in smu_v14_0_2_ppt.c).
	for _, f := range [...]Field{EnergyAccumulator, EnergyByASIC} {
		if *at(f) == math.MaxUint32 {
			*at(f) = NA
		}
	}
	// An idle MI300X under amdgpu 6.10.5 reports the count of all cycles as the residency of three reasons, which is
	// wrong. The firmware may count on while the driver copies, so the comparison has a tolerance.
	const meanwhile = 16
	if cycles := *at(AccumulationCounter); cycles != NA && cycles > meanwhile {
		for f := ProchotResidency; f <= HBMThmResidency; f++ {
			if r := *at(f); max(r, cycles)-min(r, cycles) <= meanwhile {
				*at(f) = NA
			}
		}
	}
	// 2 is AMDGPU_XGMI_LINK_NA: a virtual function does not know.
	links := m.words[m.start[XGMILinkStatus]:m.start[XGMILinkStatus+1]]
	for i, v := range links {
		if v > 1 {
			links[i] = NA
		}
	}
}
