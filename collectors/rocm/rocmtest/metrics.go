package rocmtest

import (
	"encoding/binary"
	"fmt"
)

// blob builds a gpu_metrics file: members in the order of the kernel's structures
// (drivers/gpu/drm/amd/include/kgd_pp_interface.h), little-endian, with a C
// compiler's alignment. It does not use the decoder's tables, so that each checks
// the other.
type blob struct {
	b []byte
}

func (w *blob) align(n int) {
	for len(w.b)%n != 0 {
		w.b = append(w.b, 0)
	}
}

func (w *blob) u8(v ...uint64) {
	for _, x := range v {
		w.b = append(w.b, byte(x))
	}
}

func (w *blob) u16(v ...uint64) {
	w.align(2)
	for _, x := range v {
		w.b = binary.LittleEndian.AppendUint16(w.b, uint16(x))
	}
}

func (w *blob) u32(v ...uint64) {
	w.align(4)
	for _, x := range v {
		w.b = binary.LittleEndian.AppendUint32(w.b, uint32(x))
	}
}

func (w *blob) u64(v ...uint64) {
	w.align(8)
	for _, x := range v {
		w.b = binary.LittleEndian.AppendUint64(w.b, x)
	}
}

// na means "not available" in any width.
const na = ^uint64(0)

func times(n int, v uint64) []uint64 {
	s := make([]uint64, n)
	for i := range s {
		s[i] = v
	}
	return s
}

// firstOf returns eight values: v for the first k, na for the others.
func firstOf(k int, v uint64) []uint64 {
	s := times(8, na)
	for i := range min(k, len(s)) {
		s[i] = v
	}
	return s
}

// encode returns the gpu_metrics file of a revision such as "1.3". Its header has
// the true size.
func encode(revision string, g *GPU) ([]byte, error) {
	var format, content int
	if _, err := fmt.Sscanf(revision, "%d.%d", &format, &content); err != nil {
		return nil, fmt.Errorf("read revision %q: %w", revision, err)
	}
	w := &blob{b: []byte{0, 0, byte(format), byte(content)}}
	m, state := g.spec, g.State
	if g.Index%m.dies != 0 { // only the first die reports the package's power
		state.Watts, state.Energy = 0, 0
	}
	s := &state
	switch {
	case format == 1 && content == 0:
		w.v10(s, m)
	case format == 1 && content <= 3:
		w.v1(content, s, m)
	case format == 1 && content <= 5:
		w.v14(content, s, m)
	case format == 1 && content <= 8:
		w.v16(content, s, m, len(g.Instances))
	case format == 1 && content == 9:
		return encodeList(1, 9, s.attributes(m)), nil
	case format == 2 && content <= 4:
		w.v2(content, s)
	case format == 3 && content == 0:
		w.v3(s)
	default:
		return nil, fmt.Errorf("unknown revision %q", revision)
	}
	w.align(8) // every revision has a member of eight bytes
	binary.LittleEndian.PutUint16(w.b, uint16(len(w.b)))
	return w.b, nil
}

func (s *State) clocks() []uint64 {
	return []uint64{s.SclkMHz, s.SocclkMHz, s.MclkMHz, s.VclkMHz, s.DclkMHz, s.VclkMHz, s.DclkMHz}
}

func (w *blob) v10(s *State, m spec) {
	w.u64(s.Nanos)
	w.u16(s.EdgeC, s.JunctionC, s.MemC, 45, s.VRSocC, 46)
	w.u16(s.Util, s.MemUtil, s.MMUtil, s.Watts)
	w.u32(s.Energy)
	w.u16(s.clocks()...)
	w.u16(s.clocks()...)
	w.u32(s.Throttle)
	w.u16(s.FanRPM)
	w.u8(uint64(m.lanes), m.decigt)
}

func (w *blob) v1(content int, s *State, m spec) {
	w.u16(s.EdgeC, s.JunctionC, s.MemC, 45, s.VRSocC, 46)
	w.u16(s.Util, s.MemUtil, s.MMUtil, s.Watts)
	w.u64(s.Energy, s.Nanos)
	w.u16(s.clocks()...)
	w.u16(s.clocks()...)
	w.u32(s.Throttle)
	fan := na
	if m.fan {
		fan = s.FanRPM
	}
	w.u16(fan, uint64(m.lanes), m.decigt, 0)
	w.u32(s.GfxAcc, s.MemAcc)
	hbm := times(4, na)
	if m.ras {
		hbm = s.HBMC[:]
	}
	w.u16(hbm...)
	if content >= 2 {
		w.u64(s.Nanos / 10)
	}
	if content >= 3 {
		w.u16(na, s.MilliVolts, na, 0)
		w.u64(s.Throttle)
	}
}

func (w *blob) v14(content int, s *State, m spec) {
	w.u16(s.JunctionC, s.MemC, s.VRSocC, s.Watts, s.Util, s.MemUtil)
	w.u16(s.VCN[:]...)
	if content >= 5 {
		w.u16(s.JPEG[:32]...)
	}
	w.u64(s.Energy, s.Nanos)
	w.u32(s.Throttle, 0)
	w.links(s, m)
	w.pcie(s)
	if content >= 5 {
		w.u32(s.NAKsSent, s.NAKsReceived)
	}
	w.u64(s.XGMIRead[:]...)
	w.u64(s.XGMIWrite[:]...)
	w.currentClocks(s)
	w.u16(0)
}

func (w *blob) links(s *State, m spec) {
	w.u16(uint64(m.lanes), m.decigt, 16, 32)
	w.u32(s.GfxAcc, s.MemAcc)
}

func (w *blob) pcie(s *State) {
	w.u64(s.PCIeAcc, s.PCIeGBs, s.Recoveries, s.Replays, s.Rollovers)
}

func (w *blob) currentClocks(s *State) {
	w.u64(s.Nanos / 10)
	w.u16(times(8, s.SclkMHz)...)
	w.u16(times(4, s.SocclkMHz)...)
	w.u16(times(4, s.VclkMHz)...)
	w.u16(times(4, s.DclkMHz)...)
	w.u16(s.MclkMHz)
}

// v16 encodes 1.6 to 1.8, which have values for each compute partition.
func (w *blob) v16(content int, s *State, m spec, parts int) {
	w.u16(s.JunctionC, s.MemC, s.VRSocC, s.Watts, s.Util, s.MemUtil)
	if content >= 7 {
		w.u64(5300) // highest memory bandwidth, GB/s
	}
	w.u64(s.Energy, s.Nanos)
	w.u32(s.Cycles, s.Prochot, s.PPT, s.SocketThermal, s.VRThermal, s.HBMThermal, 0)
	w.links(s, m)
	w.pcie(s)
	w.u32(s.NAKsSent, s.NAKsReceived)
	w.u64(s.XGMIRead[:]...)
	w.u64(s.XGMIWrite[:]...)
	if content >= 7 {
		w.u16(s.XGMIUp[:]...)
		w.u16(0)
	}
	w.currentClocks(s)
	w.u16(uint64(parts))
	for i := range 8 {
		w.partition(content, s, i < parts, m.xccs/parts)
	}
	w.u32(s.Recoveries) // of the link's other end
}

// partition appends amdgpu_xcp_metrics, _v1_1 or _v1_2. Members of a missing partition are na.
func (w *blob) partition(content int, s *State, there bool, xccs int) {
	jpegs, vcns := 32, 4
	if content == 8 {
		jpegs = 40
	}
	if !there {
		xccs, vcns = 0, 0
	}
	w.align(8) // as the structure's widest member
	w.u32(firstOf(xccs, s.Util)...)
	if there {
		w.u16(s.JPEG[:jpegs]...)
		w.u16(s.VCN[:vcns]...)
	} else {
		w.u16(times(jpegs, na)...)
		w.u16(times(4, na)...)
	}
	w.u64(firstOf(xccs, s.GfxAcc)...)
	switch content {
	case 7:
		w.u64(firstOf(xccs, s.BelowLimit)...)
	case 8:
		w.u64(firstOf(xccs, s.BelowLimit)...)     // for power
		w.u64(firstOf(xccs, s.BelowLimit/2)...)   // for heat
		w.u64(firstOf(xccs, s.BelowLimit/4)...)   // low utilisation
		w.u64(firstOf(xccs, s.BelowLimit*3/2)...) // in all
	}
}

// v2 encodes the format of older APUs: hundredths of a degree, milliwatts.
func (w *blob) v2(content int, s *State) {
	if content == 0 {
		w.u64(s.Nanos)
	}
	centi := s.EdgeC * 100
	w.u16(centi, centi)
	w.u16(times(8, centi)...)
	w.u16(centi, centi)
	percent := s.Util
	if content == 4 {
		percent *= 100
	}
	w.u16(percent, s.MMUtil)
	if content > 0 {
		w.u64(s.Nanos)
	}
	mw := s.Watts * 1000
	w.u16(mw, mw/4, mw/8, mw/2)
	w.u16(times(8, mw/32)...)
	clocks := []uint64{s.SclkMHz, s.SocclkMHz, s.MclkMHz, s.FclkMHz, s.VclkMHz, s.DclkMHz}
	w.u16(clocks...)
	w.u16(clocks...)
	w.u16(times(8, 3000)...)
	w.u16(times(2, 3000)...)
	w.u32(s.Throttle)
	w.u16(s.FanPWM, 0)
	if content == 0 {
		return
	}
	w.u16(0, 0)
	if content >= 2 {
		w.u64(s.Throttle)
	}
	if content >= 3 {
		w.u16(times(12, centi)...)
	}
	if content >= 4 {
		w.u16(900, 900, s.MilliVolts, 1000, 1000, 1000)
	}
}

// v3 encodes the format of newer APUs.
func (w *blob) v3(s *State) {
	centi := s.EdgeC * 100
	w.u16(centi, centi)
	w.u16(times(16, centi)...)
	w.u16(na)
	w.u16(s.Util, s.MMUtil)
	w.u16(times(8, 0)...)
	w.u16(times(16, 5)...)
	w.u16(900, 400, 0, 0) // MB/s
	w.u64(s.Nanos)
	mw := s.Watts * 1000
	w.u32(mw)
	w.u16(0)
	w.u32(mw, mw/2, na, mw/4)
	w.u16(times(16, mw/64)...)
	w.u16(na, 54000, 54000)
	w.u16(s.SclkMHz, s.SocclkMHz, 400, 400, s.FclkMHz, s.VclkMHz, s.MclkMHz, 400)
	w.u16(times(16, 3000)...)
	w.u16(5000, 2700)
	w.u32(s.Prochot, 0, 0, s.PPT, 0, s.SocketThermal, 0, 1000)
}

// attribute is an entry of revision 1.9 and of the files of partitions: the parts of the
// word before the values, and the values.
type attribute struct {
	id, kind, unit int
	values         []uint64
}

// Kinds and units, with the numbers of the kernel's header.
const (
	kindU16, kindU32, kindU64 = 2, 4, 6

	plain, megahertz, celsius, watts, nanoseconds, tenNanoseconds = 0, 1, 2, 3, 4, 5
	gigatransfers, tenthGigatransfers, gigabytes, kilobytes       = 6, 7, 8, 9
	percent                                                       = 10
)

// attributes returns SMU_13_0_6_METRICS_FIELDS: the attributes of a whole GPU.
func (s *State) attributes(m spec) []attribute {
	one := func(v uint64) []uint64 { return []uint64{v} }
	all := []attribute{
		{0, kindU16, celsius, one(s.JunctionC)}, {1, kindU16, celsius, one(s.MemC)}, {2, kindU16, celsius, one(s.VRSocC)},
		{3, kindU16, watts, one(s.Watts)}, {4, kindU16, percent, one(s.Util)}, {5, kindU16, percent, one(s.MemUtil)},
		{6, kindU64, gigabytes, one(5300)}, {7, kindU64, plain, one(s.Energy)}, {8, kindU64, nanoseconds, one(s.Nanos)},
		{9, kindU32, plain, one(s.Cycles)}, {10, kindU32, plain, one(s.Prochot)}, {11, kindU32, plain, one(s.PPT)},
		{12, kindU32, plain, one(s.SocketThermal)}, {13, kindU32, plain, one(s.VRThermal)}, {14, kindU32, plain, one(s.HBMThermal)},
		{15, kindU32, plain, one(0)}, {16, kindU16, plain, one(uint64(m.lanes))}, {17, kindU16, tenthGigatransfers, one(m.decigt)},
		{18, kindU16, plain, one(16)}, {19, kindU16, gigatransfers, one(32)},
		{20, kindU32, percent, one(s.GfxAcc)}, {21, kindU32, percent, one(s.MemAcc)},
		{22, kindU64, percent, one(s.PCIeAcc)}, {23, kindU64, gigabytes, one(s.PCIeGBs)}, {24, kindU64, plain, one(s.Recoveries)},
		{25, kindU64, plain, one(s.Replays)}, {26, kindU64, plain, one(s.Rollovers)},
		{27, kindU32, plain, one(s.NAKsSent)}, {28, kindU32, plain, one(s.NAKsReceived)},
		{29, kindU64, kilobytes, s.XGMIRead[:]}, {30, kindU64, kilobytes, s.XGMIWrite[:]}, {31, kindU16, plain, s.XGMIUp[:]},
		{32, kindU64, tenNanoseconds, one(s.Nanos / 10)}, {33, kindU16, megahertz, times(8, s.SclkMHz)},
		{34, kindU16, megahertz, times(4, s.SocclkMHz)}, {35, kindU16, megahertz, times(4, s.VclkMHz)},
		{36, kindU16, megahertz, times(4, s.DclkMHz)}, {37, kindU16, megahertz, one(s.MclkMHz)}, {39, kindU32, plain, one(s.Recoveries)},
	}
	return append(all, s.engines(m.xccs)...)
}

// partitionAttributes returns SMU_13_0_6_PARTITION_METRICS_FIELDS, and two attributes that were added later.
func (s *State) partitionAttributes(xccs int) []attribute {
	all := []attribute{
		{33, kindU16, megahertz, firstOf(xccs, s.SclkMHz)}, {34, kindU16, megahertz, times(4, s.SocclkMHz)},
		{35, kindU16, megahertz, times(4, s.VclkMHz)}, {36, kindU16, megahertz, times(4, s.DclkMHz)}, {37, kindU16, megahertz, []uint64{s.MclkMHz}},
	}
	return append(append(all, s.engines(xccs)...),
		attribute{9, kindU64, plain, []uint64{s.Cycles}}, attribute{32, kindU64, tenNanoseconds, []uint64{s.Nanos / 10}})
}

func (s *State) engines(xccs int) []attribute {
	return []attribute{
		{40, kindU32, percent, firstOf(xccs, s.Util)}, {41, kindU16, percent, s.JPEG[:]}, {42, kindU16, percent, s.VCN[:]},
		{43, kindU64, percent, firstOf(xccs, s.GfxAcc)}, {44, kindU64, plain, firstOf(xccs, s.BelowLimit)},
		{45, kindU64, plain, firstOf(xccs, s.BelowLimit/2)}, {46, kindU64, plain, firstOf(xccs, s.BelowLimit/4)},
		{47, kindU64, plain, firstOf(xccs, s.BelowLimit*3/2)},
	}
}

// encodeList returns a file of attributes, without alignment.
func encodeList(format, content byte, all []attribute) []byte {
	b := binary.LittleEndian.AppendUint32([]byte{0, 0, format, content}, uint32(len(all)))
	for _, a := range all {
		b = binary.LittleEndian.AppendUint64(b, uint64(a.unit<<24|a.kind<<20|a.id<<10|len(a.values)))
		for _, v := range a.values {
			var word [8]byte
			binary.LittleEndian.PutUint64(word[:], v)
			b = append(b, word[:1<<(a.kind/2)]...)
		}
	}
	binary.LittleEndian.PutUint16(b, uint16(len(b)))
	return b
}
