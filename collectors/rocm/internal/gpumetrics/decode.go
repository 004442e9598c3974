// Package gpumetrics decodes the gpu_metrics file of the amdgpu driver: what a
// GPU's firmware measures. Up to revision 1.8 it is one binary structure, whose
// layout depends on the revision in its header. Every revision is decoded as exactly
// that; an unknown one is refused, because members move between revisions. From 1.9
// on it is a list of attributes that describe themselves: those that are not known
// are counted and left out.
//
// A Decoder is shared by all GPUs and immutable; each GPU has Metrics of its own,
// which are used by one goroutine at a time. Decoding allocates nothing.
package gpumetrics

import (
	"encoding/binary"
	"errors"
	"math"
)

// What Decode answers. The values of Metrics are all not available then.
var (
	ErrShort    = errors.New("gpu_metrics is shorter than its header says")
	ErrRevision = errors.New("unknown revision of gpu_metrics")
)

// NA is a value that the firmware does not have: all ones, in any width.
const NA = math.MaxUint64

// MaxSize is more than the largest file has.
const MaxSize = 8192

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
		d.layouts = append(d.layouts, b.done())
	}
	add(1, 0, v10)
	for c := uint8(1); c <= 3; c++ {
		add(1, c, func(b *builder) { v11(b, c) })
	}
	for c := uint8(4); c <= 5; c++ {
		add(1, c, func(b *builder) { v14(b, c) })
	}
	add(1, 6, v16early)
	for c := uint8(6); c <= 8; c++ {
		add(1, c, func(b *builder) { v16(b, c) })
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

// find returns the layout of a header, nil if there is none. The size belongs
// to what is compared: a driver that changes a structure changes its size.
func (d *Decoder) find(h Header) *layout {
	for i := range d.layouts {
		l := &d.layouts[i]
		if l.format == h.Format && l.content == h.Content && l.size == int(h.Size) {
			return l
		}
	}
	return nil
}

// Decode reads a file into m. Bytes behind the size in the header are ignored.
func (d *Decoder) Decode(file []byte, m *Metrics) error {
	m.Reset()
	file, h, err := whole(file)
	if err != nil {
		return err
	}
	switch l := d.find(h); {
	case h.Format == d.list.format && h.Content == d.list.content:
		if err := d.decodeList(file, m); err != nil {
			return err
		}
	case l == nil:
		return ErrRevision
	default:
		m.begin(d, l)
		for _, r := range l.runs {
			m.read(r, file)
		}
	}
	m.clean()
	return nil
}

// whole cuts a file to the size that its header says.
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

// clean takes out what only looks like a value.
func (m *Metrics) clean() {
	at := func(f Field) *uint64 { return &m.words[m.start[f]] }
	// Drivers of boards that count no energy put all ones of 32 bits into a member
	// of 64 (UINT_MAX in smu_v14_0_2_ppt.c).
	for _, f := range [...]Field{EnergyAccumulator, EnergyByASIC} {
		if *at(f) == math.MaxUint32 {
			*at(f) = NA
		}
	}
	// An idle MI300X under amdgpu 6.10.5 shows the count of all cycles as the
	// residency of three reasons: that is no residency. Firmware may count on while
	// the driver copies.
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
