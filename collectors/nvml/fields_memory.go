package nvml

import "warpgauge/pkg/field"

// Memory: framebuffer, BAR1, ECC, retired pages, remapped rows.

const mebibyte = 1 << 20

var memoryReadings = []reading{
	{id: 90, terms: of(getBAR1Info, 0), how: unlessZero, div: mebibyte},
	{id: 92, terms: ofTotal(getBAR1Info, 2), how: unlessNone, div: mebibyte},
	{id: 93, terms: ofTotal(getBAR1Info, 1), how: unlessNone, div: mebibyte},
	{id: 250, terms: of(getMemoryInfo, 0), how: unlessZero, div: mebibyte, boards: sharedMemory},
	{id: 251, terms: ofTotal(getMemoryInfo, 1), how: unlessNone, div: mebibyte, boards: sharedMemory},
	{id: 252, terms: ofTotal(getMemoryInfo, 2), how: unlessNone, div: mebibyte, boards: sharedMemory, note: "before driver 510 with what is reserved, as in DCGM"},
	{id: 253, terms: ofTotal(getMemoryInfo, 3), how: unlessNone, div: mebibyte, boards: sharedMemory},
	{id: 254, terms: []term{{call: getMemoryInfo}, {call: getMemoryInfo, pick: 2}, {call: getMemoryInfo, pick: 3}}, how: usedShare, boards: sharedMemory},
	{id: 254, terms: []term{{call: getMemoryInfo}, {call: getMemoryInfo, pick: 2}}, how: usedShare, boards: sharedMemory},
}

// ofTotal is a part of the total that the call gives first.
func ofTotal(c call, pick int) []term { return append(of(c, pick), of(c, 0)...) }

const sharedMemory = "not where the GPU has no memory of its own"

// Enums of nvml.h.
const (
	corrected, uncorrected = 0, 1 // nvmlMemoryErrorType_t
	volatileECC, aggregate = 0, 1 // nvmlEccCounterType_t
	singleBitPages         = 0    // NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS
)

const (
	withECC       = "with ECC"
	upToVolta     = "with ECC, up to Turing"
	ampereRemaps  = "Ampere and newer with ECC"
	eccModeAsCall = "asked for by itself: where ECC is off NVML leaves the field as it was (NVIDIA bug 2009232)"
)

// eccReadings: the totals are fields, the counts by location calls, as in DCGM.
func eccReadings() []reading {
	out := []reading{
		{id: 300, terms: of(getECCMode, 0), boards: withECC, note: eccModeAsCall},
		{id: 301, terms: of(getECCMode, 1), boards: withECC, note: eccModeAsCall},
		{id: 310, terms: value(3), boards: withECC},
		{id: 311, terms: value(4), boards: withECC},
		{id: 312, terms: value(5), boards: withECC},
		{id: 313, terms: value(6), boards: withECC},
	}
	const l1, l2, dram, registers, texture, shared, cbu, sram = 0, 1, 2, 3, 4, 5, 6, 7 // nvmlMemoryLocation_t
	for _, block := range []struct {
		first     field.ID
		kind      uint32
		locations []uint32
	}{
		{314, volatileECC, []uint32{l1, l2, dram, registers, texture}},
		{324, aggregate, []uint32{l1, l2, dram, registers, texture}},
		{334, volatileECC, []uint32{shared, cbu}},
		{338, aggregate, []uint32{shared, cbu}},
		{342, volatileECC, []uint32{sram}},
		{344, aggregate, []uint32{sram}},
	} {
		id := block.first
		for _, location := range block.locations {
			for _, kind := range []uint32{corrected, uncorrected} {
				out = append(out, reading{id: id, terms: of(getECCCount, 0, kind, block.kind, location), boards: withECC})
				id++
			}
		}
	}
	return append(out, []reading{
		{id: 346, terms: of(getSRAMErrors, 0), boards: ampereRemaps},
		{id: 385, terms: of(getRowHistogram, 0), boards: ampereRemaps},
		{id: 386, terms: of(getRowHistogram, 1), boards: ampereRemaps},
		{id: 387, terms: of(getRowHistogram, 2), boards: ampereRemaps},
		{id: 388, terms: of(getRowHistogram, 3), boards: ampereRemaps},
		{id: 389, terms: of(getRowHistogram, 4), boards: ampereRemaps},
		{id: 390, terms: of(getRetiredPages, 0, singleBitPages), boards: upToVolta},
		{id: 391, terms: value(30), boards: upToVolta},
		{id: 392, terms: value(31), boards: upToVolta},
		{id: 393, terms: value(143), boards: ampereRemaps},
		{id: 394, terms: value(142), boards: ampereRemaps},
		{id: 395, terms: value(145), boards: ampereRemaps},
		{id: 396, terms: value(144), boards: ampereRemaps},
		{id: 1507, terms: of(getUnrepairableMemory, 0), boards: "Hopper and newer"},
	}...)
}
