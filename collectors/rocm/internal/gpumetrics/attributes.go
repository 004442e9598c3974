package gpumetrics

import (
	"cmp"
	"encoding/binary"
	"fmt"
)

// Revision 1.9, and the files of partitions from 1.1 on, are a list: header, number of attributes, and for each attribute a
// 64-bit word that describes it, followed by its values. Nothing is aligned. The fields of the word are defined by
// AMDGPU_METRICS_ENC_ATTR in kgd_pp_interface.h; for a kernel's list see SMU_13_0_6_METRICS_FIELDS in smu_v13_0_6_ppt.h.

// Units of attributes (AMDGPU_METRICS_UNIT_…).
const (
	unitNone    = iota
	unitMHz     // CLOCK_1
	unitCelsius // TEMP_1
	unitWatt    // POWER_1
	unitNano    // TIME_1
	unitTenNano // TIME_2
	unitGT      // SPEED_1
	unitTenthGT // SPEED_2
	unitGB      // BW_1, a second
	unitKB      // DATA_1
	unitPercent // PERCENT
)

const (
	attributeWord  = 8
	listHeaderSize = headerSize + 4
)

// attribute is a known attribute.
type attribute struct {
	field Field
	unit  uint8
}

// attributes is in the order of enum amdgpu_metrics_attr_id. The numbers after TEMPERATURE_HBM differ between kernels.
var attributes = [...]attribute{ //nolint:gochecknoglobals // a constant
	{TemperatureHotspot, unitCelsius}, {TemperatureMem, unitCelsius}, {TemperatureVRSoc, unitCelsius},
	{CurrentSocketPower, unitWatt}, {AverageGfxActivity, unitPercent}, {AverageUmcActivity, unitPercent},
	{MemMaxBandwidth, unitGB}, {EnergyAccumulator, unitNone}, {SystemClockCounter, unitNano},
	{AccumulationCounter, unitNone}, {ProchotResidency, unitNone}, {PPTResidency, unitNone},
	{SocketThmResidency, unitNone}, {VRThmResidency, unitNone}, {HBMThmResidency, unitNone},
	{GfxclkLockStatus, unitNone}, {PCIeLinkWidth, unitNone}, {PCIeLinkSpeed, unitTenthGT},
	{XGMILinkWidth, unitNone}, {XGMILinkSpeed, unitGT}, {GfxActivityAcc, unitPercent}, {MemActivityAcc, unitPercent},
	{PCIeBandwidthAcc, unitPercent}, {PCIeBandwidthInst, unitGB /* but in Mb/s */}, {PCIeL0ToRecovery, unitNone}, {PCIeReplay, unitNone},
	{PCIeReplayRover, unitNone}, {PCIeNAKSent, unitNone}, {PCIeNAKReceived, unitNone},
	{XGMIReadAcc, unitKB}, {XGMIWriteAcc, unitKB}, {XGMILinkStatus, unitNone}, {FirmwareTimestamp, unitTenNano},
	{CurrentGfxclk, unitMHz}, {CurrentSocclk, unitMHz}, {CurrentVclk0, unitMHz}, {CurrentDclk0, unitMHz}, {CurrentUclk, unitMHz},
	{NumPartition, unitNone}, {PCIeOtherEnd, unitNone},
	{XCPGfxBusy, unitPercent}, {XCPJPEGBusy, unitPercent}, {XCPVCNBusy, unitPercent}, {XCPGfxBusyAcc, unitPercent},
	{XCPBelowLimitPPT, unitNone}, {XCPBelowLimitThm, unitNone}, {XCPLowUtilization, unitNone}, {XCPBelowLimitTotal, unitNone},
	{TemperatureHBM, unitCelsius},
}

// perPartition returns how many elements of a field one partition has, 0 for fields of the whole GPU.
func (f Field) perPartition() int {
	if f < XCPGfxBusy || f > XCPBelowLimitTotal {
		return 0
	}
	return f.Len() / Partitions
}

// next cuts the first attribute off a list.
func next(list []byte) (word uint64, values, rest []byte, ok bool) {
	if len(list) < attributeWord {
		return 0, nil, nil, false
	}
	word = binary.LittleEndian.Uint64(list)
	size := instances(word) * width(word)
	if list = list[attributeWord:]; size > len(list) || width(word) == 0 {
		return word, nil, nil, false
	}
	return word, list[:size], list[size:], true
}

func instances(word uint64) int { return int(word & 0x3ff) }
func number(word uint64) int    { return int(word >> 10 & 0x3ff) }
func unit(word uint64) uint8    { return uint8(word >> 24) }

// width returns the size of a value in bytes, 0 for an unknown type. Odd types are signed.
func width(word uint64) int {
	kind := word >> 20 & 0xf
	if kind > 7 {
		return 0
	}
	return 1 << (kind / 2)
}

// wanted returns the field of an attribute, and the elements of it that its values become. ok is false if the attribute is
// unknown, or has another unit or kind than expected.
func wanted(word uint64) (f Field, first, count int, ok bool) {
	n := number(word)
	if n >= len(attributes) || word>>32 != 0 || sameScale(unit(word)) != sameScale(attributes[n].unit) || word>>20&1 != 0 {
		return none, 0, 0, false
	}
	f = attributes[n].field
	if perLink := f == XGMIReadAcc || f == XGMIWriteAcc; perLink && instances(word) == 1 { // SMU 15
		return f, XGMILinks, 1, true
	} else if perLink {
		return f, 0, min(instances(word), XGMILinks), true
	}
	return f, 0, min(instances(word), cmp.Or(f.perPartition(), f.Len())), true
}

// leaveOut counts an attribute that is not decoded, or only in part.
func (m *Metrics) leaveOut(word uint64) {
	if m.unknown < len(m.unread) {
		m.unread[m.unknown] = word
	}
	m.unknown++
}

// Unread names the first attributes that Unknown counts, by amdgpu_metrics_attr_id and amdgpu_metrics_attr_unit.
func (m *Metrics) Unread() (out []string) {
	for _, word := range m.unread[:min(m.unknown, len(m.unread))] {
		out = append(out, fmt.Sprintf("id %d, unit %d, %d values", number(word), unit(word), instances(word)))
	}
	return out
}

// sameScale returns the unit without the difference between percent and none: kernels disagree about sums of activities,
// which are percent in all of them.
func sameScale(unit uint8) uint8 {
	if unit == unitPercent {
		return unitNone
	}
	return unit
}

// DecodePartition adds the engines of one partition, from its own file, to a decoded GPU file. ClearPartitions must be
// called before the first. A file of another revision counts as one unknown attribute.
func (d *Decoder) DecodePartition(file []byte, partition int, m *Metrics) error {
	file, h, err := whole(file)
	switch {
	case err != nil:
		return err
	case h.Format != 1 || h.Content != 1, partition < 0, partition >= Partitions, !m.Listed():
		m.leaveOut(1<<64 - 1) // id 1023: it has no attribute
		return ErrRevision
	}
	if err = m.attributes(file, partition, func(f Field) bool { return f.perPartition() > 0 }); err != nil {
		for f := XCPGfxBusy; f <= XCPBelowLimitTotal; f++ {
			first := m.start[f] + uint16(partition*f.perPartition())
			m.blank(first, first+uint16(f.perPartition()))
		}
	}
	return err
}

// ClearPartitions removes the engines that came from the GPU's file.
func (m *Metrics) ClearPartitions() {
	m.blank(m.start[XCPGfxBusy], m.start[XCPBelowLimitTotal+1])
}

// attributes reads a list: the fields that keep accepts, stored for a partition. If a field appears twice, the first
// counts. After an error, of a list with fewer attributes than its header says, some of the fields are stored.
func (m *Metrics) attributes(file []byte, partition int, keep func(Field) bool) error {
	if len(file) < listHeaderSize {
		return ErrShort
	}
	var seen [fields]bool
	list := file[listHeaderSize:]
	for n := binary.LittleEndian.Uint32(file[headerSize:]); n > 0; n-- {
		word, values, rest, ok := next(list)
		if !ok && width(word) == 0 { // the size of its values is unknown, so the rest of the list cannot be read
			m.leaveOut(word)
			return nil
		} else if !ok {
			return ErrShort
		}
		list = rest
		f, first, count, ok := wanted(word)
		if again := ok && seen[f]; !ok || again || count < instances(word) {
			if m.leaveOut(word); !ok || again {
				continue
			}
		}
		seen[f] = true
		if !keep(f) {
			continue
		}
		m.width[f] = uint8(width(word))
		at := m.start[f] + uint16(first+partition*f.perPartition())
		m.widenRun(run{word: at, count: uint8(count), width: m.width[f]}, values)
	}
	return nil
}
