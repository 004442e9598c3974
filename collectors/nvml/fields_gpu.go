//go:build linux && cgo

package nvml

import (
	"fmt"
	"strconv"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Readings of the GPU itself: identity, clocks, temperatures, power, load, memory. Arguments are enums of nvml.h.

const (
	clockGraphics, clockSM, clockMemory, clockVideo                  = 0, 1, 2, 3 // nvmlClockType_t
	sensorGPU                                                        = 0          // nvmlTemperatureSensors_t
	thresholdShutdown, thresholdSlowdown, thresholdMem, thresholdGPU = 0, 1, 2, 3 // nvmlTemperatureThresholds_t
	scopeNUMANode                                                    = 0          // NVML_AFFINITY_SCOPE_NODE
)

const maskNote = "warpgauge drops a mask that a 64-bit float cannot hold exactly"

var identityReadings = []reading{
	{id: 4, terms: callTerms(getDeviceCount, 0)},
	{id: 5, terms: callTerms(getCUDAVersion, 0)},
	{id: 52, terms: callTerms(getIndex, 0)},
	{id: 55, terms: callTerms(getMinorNumber, 0)},
	{id: 58, terms: callTerms(getPCIInfo, 0)},
	{id: 59, terms: callTerms(getPCIInfo, 1)},
	{id: 63, terms: append(callTerms(getComputeCapability, 0), callTerms(getComputeCapability, 1)...), how: asCapability},
	{id: 65, terms: callTerms(getComputeMode, 0), how: asComputeMode},
	{id: 66, terms: callTerms(getPersistenceMode, 0)},
	{id: 67, terms: callTerms(getMIGMode, 0), boards: "Ampere and newer with MIG", note: "absent without MIG; DCGM reports 0"},
	{id: 69, terms: callTerms(getMaxMIGDevices, 0), how: unlessZero, boards: "Ampere and newer with MIG", note: "warpgauge drops the 0 that some drivers report while MIG is off"},
	{id: 70, terms: callTerms(getCPUAffinity, 0), note: maskNote},
	{id: 71, terms: callTerms(getCPUAffinity, 1), note: maskNote},
	{id: 72, terms: callTerms(getCPUAffinity, 2), note: maskNote},
	{id: 73, terms: callTerms(getCPUAffinity, 3), note: maskNote},
	{id: 74, terms: callTerms(getCCState, 0), boards: "Ampere and newer"},
	{id: 83, terms: callTerms(getInforomChecksum, 0), boards: "with an InfoROM"},
	{id: 84, terms: callTerms(getInforomValid, 0), boards: "with an InfoROM", note: "the check itself is made on the GPU"},
	{id: 86, terms: callTerms(getMemoryAffinity, 0, scopeNUMANode), note: maskNote},
	{id: 87, terms: callTerms(getMemoryAffinity, 1, scopeNUMANode), note: maskNote},
	{id: 88, terms: callTerms(getMemoryAffinity, 2, scopeNUMANode), note: maskNote},
	{id: 89, terms: callTerms(getMemoryAffinity, 3, scopeNUMANode), note: maskNote},
	{id: 94, terms: callTerms(getGPMSupport, 0), boards: "all; 1 from Hopper"},
	{id: 500, terms: callTerms(getVirtualizationMode, 0)},
	{id: 526, terms: callTerms(getGridLicence, 0), note: "0 if licensing does not concern the GPU, as in DCGM"},
}

var clockReadings = []reading{
	// A gated clock reads 0, which is its actual speed.
	{id: 100, terms: callTerms(getClockInfo, 0, clockSM)},
	{id: 101, terms: callTerms(getClockInfo, 0, clockMemory)},
	{id: 102, terms: callTerms(getClockInfo, 0, clockVideo)},
	{id: 110, terms: callTerms(getApplicationsClock, 0, clockGraphics), how: unlessZero},
	{id: 111, terms: callTerms(getApplicationsClock, 0, clockMemory), how: unlessZero},
	{id: 112, terms: callTerms(getClockEventReasons, 0)},
	{id: 113, terms: callTerms(getMaxClockInfo, 0, clockSM), how: unlessZero},
	{id: 114, terms: callTerms(getMaxClockInfo, 0, clockMemory), how: unlessZero},
	{id: 115, terms: callTerms(getMaxClockInfo, 0, clockVideo), how: unlessZero},
	{id: 120, terms: callTerms(getAutoBoost, 0), boards: "some boards up to Maxwell"},
	{id: 190, terms: callTerms(getPState, 0), how: asPState, note: "warpgauge drops an unknown state; DCGM reports 32"},
}

var thermalReadings = []reading{
	{id: 140, terms: value(82), how: unlessZero, boards: "with HBM, and some with GDDR6X",
		note: "warpgauge drops the 0 of boards without the sensor; DCGM reports it"},
	{id: 150, terms: callTerms(getTemperature, 0, sensorGPU)},
	{id: 151, terms: callTerms(getTemperatureThreshold, 0, thresholdMem), how: unlessZero},
	{id: 152, terms: callTerms(getTemperatureThreshold, 0, thresholdGPU), how: unlessZero},
	{id: 153, terms: callTerms(getMarginTemperature, 0)},
	{id: 158, terms: callTerms(getTemperatureThreshold, 0, thresholdSlowdown), how: unlessZero},
	{id: 159, terms: callTerms(getTemperatureThreshold, 0, thresholdShutdown), how: unlessZero},
	{id: 191, terms: callTerms(getFanSpeed, 0), boards: "with a fan"},
}

const milliwatts = 1000 // in a watt

const percent = 100

const wholeWatts = "DCGM reports whole watts, rounded down"

var powerReadings = []reading{
	{id: 155, terms: callTerms(getPowerUsage, 0), how: unlessZero, div: milliwatts, note: "warpgauge drops the 0 of GPUs without a sensor"},
	{id: 156, terms: value(83), how: climbing, boards: "Volta and newer"},
	{id: 156, terms: callTerms(getTotalEnergy, 0), how: climbing, boards: "Volta and newer"},
	{id: 157, terms: value(186), how: unlessZero, div: milliwatts},
	{id: 160, terms: callTerms(getPowerLimit, 0), how: unlessZero, div: milliwatts, note: wholeWatts},
	{id: 161, terms: callTerms(getPowerLimitRange, 0), how: unlessZero, div: milliwatts, note: wholeWatts},
	{id: 162, terms: callTerms(getPowerLimitRange, 1), how: unlessZero, div: milliwatts, note: wholeWatts},
	{id: 163, terms: callTerms(getPowerDefaultLimit, 0), how: unlessZero, div: milliwatts, note: wholeWatts},
	{id: 164, terms: callTerms(getEnforcedPowerLimit, 0), how: unlessZero, div: milliwatts, note: wholeWatts},
}

var utilizationReadings = []reading{
	{id: 203, terms: callTerms(getUtilization, 0), boards: "not while MIG is on"},
	{id: 204, terms: callTerms(getUtilization, 1), boards: "not while MIG is on"},
	{id: 206, terms: callTerms(getEncoderUtilization, 0), boards: "with an encoder, not while MIG is on"},
	{id: 207, terms: callTerms(getDecoderUtilization, 0), boards: "with a decoder, not while MIG is on"},
	{id: field.NVIDIAJPEGBusy, terms: callTerms(getJPGUtilization, 0), div: percent, boards: "Turing and newer, not while MIG is on"},
	{id: field.NVIDIAOFABusy, terms: callTerms(getOFAUtilization, 0), div: percent, boards: "Turing and newer, not while MIG is on"},
	{id: field.NVIDIAComputeProcesses, terms: callTerms(getComputeProcesses, 0), note: "the number of processes of all users, without their PIDs"},
	{id: field.NVIDIAGraphicsProcesses, terms: callTerms(getGraphicsProcesses, 0)},
}

// violationReadings lists how long clocks were held down, in ns. Fields from 240 have DCGM's old names; fields from
// 1420 have the names of the clock events.
var violationReadings = []reading{
	{id: 240, terms: value(74)},
	{id: 241, terms: value(75)},
	{id: 242, terms: value(76)},
	{id: 243, terms: value(77)},
	{id: 244, terms: value(78)},
	{id: 245, terms: value(79)},
	{id: 246, terms: value(80)},
	{id: 247, terms: value(81)},
	{id: 1420, terms: value(74)},
	{id: 1421, terms: value(76)},
	{id: 1422, terms: value(269), note: moved(269)},
	{id: 1423, terms: value(270), note: moved(270)},
	{id: 1424, terms: value(271), note: moved(271)},
}

// smoothingReadings lists the fields of power smoothing.
var smoothingReadings = func() []reading {
	out := make([]reading, 18)
	for i := range out { // DCGM and NVML order these fields alike
		id := firstMoving + uint32(i)
		out[i] = reading{id: 1425 + field.ID(i), terms: value(id), boards: "Blackwell and newer", note: moved(id)}
	}
	return out
}()

// Memory: framebuffer, BAR1, ECC, retired pages, remapped rows.

const mebibyte = 1 << 20

var memoryReadings = []reading{
	{id: 90, terms: callTerms(getBAR1Info, 0), how: unlessZero, div: mebibyte},
	{id: 92, terms: partOfTotal(getBAR1Info, 2), how: unlessNone, div: mebibyte},
	{id: 93, terms: partOfTotal(getBAR1Info, 1), how: unlessNone, div: mebibyte},
	{id: 250, terms: callTerms(getMemoryInfo, 0), how: unlessZero, div: mebibyte, boards: sharedMemory},
	{id: 251, terms: partOfTotal(getMemoryInfo, 1), how: unlessNone, div: mebibyte, boards: sharedMemory},
	{id: 252, terms: partOfTotal(getMemoryInfo, 2), how: unlessNone, div: mebibyte, boards: sharedMemory, note: "before driver 510 it includes reserved memory, as in DCGM"},
	{id: 253, terms: partOfTotal(getMemoryInfo, 3), how: unlessNone, div: mebibyte, boards: sharedMemory},
	{id: 254, terms: []term{{call: getMemoryInfo}, {call: getMemoryInfo, pick: 2}, {call: getMemoryInfo, pick: 3}}, how: usedShare, boards: sharedMemory},
	{id: 254, terms: []term{{call: getMemoryInfo}, {call: getMemoryInfo, pick: 2}}, how: usedShare, boards: sharedMemory},
}

// partOfTotal returns the terms for a part and for the total, which is the call's first result.
func partOfTotal(c *call, pick int) []term { return append(callTerms(c, pick), callTerms(c, 0)...) }

const sharedMemory = "not if the GPU shares the host's memory"

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
	eccModeAsCall = "not read as an NVML field: with ECC off NVML does not write its value (NVIDIA bug 2009232)"
)

// eccReadings reads totals as field values and counts by location with calls, as DCGM does.
func eccReadings() []reading {
	out := []reading{
		{id: 300, terms: callTerms(getECCMode, 0), boards: withECC, note: eccModeAsCall},
		{id: 301, terms: callTerms(getECCMode, 1), boards: withECC, note: eccModeAsCall},
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
				out = append(out, reading{id: id, terms: callTerms(getECCCount, 0, kind, block.kind, location), boards: withECC})
				id++
			}
		}
	}
	return append(out, []reading{
		{id: 346, terms: callTerms(getSRAMErrors, 0), boards: ampereRemaps},
		{id: 385, terms: callTerms(getRowHistogram, 0), boards: ampereRemaps},
		{id: 386, terms: callTerms(getRowHistogram, 1), boards: ampereRemaps},
		{id: 387, terms: callTerms(getRowHistogram, 2), boards: ampereRemaps},
		{id: 388, terms: callTerms(getRowHistogram, 3), boards: ampereRemaps},
		{id: 389, terms: callTerms(getRowHistogram, 4), boards: ampereRemaps},
		{id: 390, terms: callTerms(getRetiredPages, 0, singleBitPages), boards: upToVolta},
		{id: 391, terms: value(30), boards: upToVolta},
		{id: 392, terms: value(31), boards: upToVolta},
		{id: 393, terms: value(143), boards: ampereRemaps},
		{id: 394, terms: value(142), boards: ampereRemaps},
		{id: 395, terms: value(145), boards: ampereRemaps},
		{id: 396, terms: value(144), boards: ampereRemaps},
		{id: 1507, terms: callTerms(getUnrepairableMemory, 0), boards: "Hopper and newer"},
	}...)
}

// PCIe, NVLink, chip-to-chip links and the NVLink fabric.

const (
	kilobyte = 1000
	kibibyte = 1024
)

const (
	forGPM  = "only if GPM does not supply it"
	wraps   = "by nvml.h the counter can wrap, and 32 bits would wrap within a second, so the value is blank until the counter has exceeded 32 bits"
	mayWrap = forGPM + "; " + wraps
)

var pcieReadings = []reading{
	{id: 200, terms: value(197), how: perSecondWide, div: kilobyte, note: wraps},
	{id: 201, terms: value(198), how: perSecondWide, div: kilobyte, note: wraps},
	{id: 202, terms: callTerms(getPCIeReplay, 0)},
	{id: 235, terms: callTerms(getPCIeMaxGen, 0), how: unlessZero},
	{id: 236, terms: callTerms(getPCIeMaxWidth, 0), how: unlessZero},
	{id: 237, terms: callTerms(getPCIeGen, 0), how: unlessZero},
	{id: 238, terms: callTerms(getPCIeWidth, 0), how: unlessZero},
	{id: 1009, terms: value(197), how: perSecondWide, note: mayWrap},
	{id: 1010, terms: value(198), how: perSecondWide, note: mayWrap},
	{id: 1091, terms: value(197), how: climbingWide, note: mayWrap},
	{id: 1092, terms: value(198), how: climbingWide, note: mayWrap},
	{id: 1501, terms: value(173)},
}

const (
	withC2C        = "Grace Hopper, Grace Blackwell"
	firstLink      = "of link 0, as in DCGM"
	notAsDCGM      = "of all links; DCGM reports link 0 only"
	withFabric     = "Hopper and newer with NVSwitch"
	blackwellLinks = "NVLink 5: Blackwell and newer"
	olderLinks     = "NVLink up to 4: not Blackwell"
)

func fabricReadings() []reading {
	out := []reading{
		{id: 170, terms: append(callTerms(getFabricInfo, 0), callTerms(getFabricInfo, 1)...), how: asFabricStatus, boards: withFabric},
		{id: 171, terms: append(callTerms(getFabricInfo, 0), callTerms(getFabricInfo, 1)...), how: asFabricError, boards: withFabric},
		{id: 173, terms: callTerms(getFabricInfo, 2), boards: withFabric},
		{id: 174, terms: callTerms(getFabricInfo, 3), boards: withFabric},
		{id: 175, terms: callTerms(getFabricSummary, 0), boards: withFabric},
		{id: 285, terms: value(170), boards: withC2C},
		{id: 286, terms: linkTerms(171, maxC2C), how: lowest, anyOf: true, boards: withC2C, note: "1 if all links are active; DCGM reports link 0 only"},
		{id: 287, terms: value(172), boards: withC2C, note: firstLink},
		{id: 1400, terms: linkTerms(231, maxC2C), anyOf: true, boards: withC2C, note: notAsDCGM},
		{id: 1401, terms: linkTerms(232, maxC2C), anyOf: true, boards: withC2C, note: notAsDCGM},
		{id: 1402, terms: linkTerms(233, maxC2C), anyOf: true, boards: withC2C, note: notAsDCGM},
		{id: 1403, terms: value(234), boards: withC2C, note: firstLink},
		{id: 1523, terms: value(230)},
	}
	for i := range 5 { // slot, tray, host, kind of peer, module
		out = append(out, reading{id: 573 + field.ID(i), terms: callTerms(getPlatformInfo, i), boards: "Blackwell and newer in a chassis",
			note: "warpgauge drops 255, which means unknown"})
	}
	return out
}

// maxC2C is the number of chip-to-chip links in GPM's metrics.
const maxC2C = 14

// linkTerms returns a field of each of the first links.
func linkTerms(id uint32, links int) (out []term) {
	for n := range uint32(links) {
		out = append(out, value(id, n)...)
	}
	return out
}

const (
	maxLinks   = 36 // NVML_NVLINK_MAX_LINKS
	namedLinks = 18 // DCGM has separate fields for these, …_L0 to …_L17
)

// Fields of nvmlDeviceGetFieldValues. Traffic is in KiB.
const (
	nvlinkDataTX, nvlinkDataRX = 138, 139
	nvlinkRawTX, nvlinkRawRX   = 140, 141 // headers included
)

// Counters of nvmlDeviceGetNvLinkErrorCounter.
const (
	linkReplay, linkRecovery, linkCRCFlit, linkCRCData = 0, 1, 2, 3
)

// nvlinkReadings returns the fields of NVLink. DCGM divides KiB per second by 1000 and calls the result MB/s.
func nvlinkReadings() []reading {
	out := []reading{
		{id: 409, terms: value(38), boards: olderLinks},
		{id: 419, terms: value(45), boards: olderLinks},
		{id: 429, terms: value(52), boards: olderLinks},
		{id: 439, terms: value(59), boards: olderLinks},
		{id: 449, terms: append(value(nvlinkDataTX, AllLinks), value(nvlinkDataRX, AllLinks)...), how: perSecond, div: kilobyte},
		{id: 843, terms: value(nvlinkDataTX, AllLinks), how: perSecond, div: kilobyte},
		{id: 897, terms: value(nvlinkDataRX, AllLinks), how: perSecond, div: kilobyte},
		{id: 1011, terms: value(nvlinkRawTX, AllLinks), how: perSecond, mul: kibibyte, note: forGPM},
		{id: 1012, terms: value(nvlinkRawRX, AllLinks), how: perSecond, mul: kibibyte, note: forGPM},
		{id: 1220, terms: value(160), boards: "Ampere and newer"},

		// of one link
		{id: 1508, terms: value(165, ThisLink)},
		{id: 1525, terms: callTerms(getNVLinkErrors, 0, ThisLink, linkCRCFlit), boards: olderLinks},
		{id: 1526, terms: callTerms(getNVLinkErrors, 0, ThisLink, linkCRCData), boards: olderLinks},
		{id: 1527, terms: callTerms(getNVLinkErrors, 0, ThisLink, linkReplay), boards: olderLinks},
		{id: 1528, terms: callTerms(getNVLinkErrors, 0, ThisLink, linkRecovery), boards: olderLinks},
		{id: 1529, terms: append(value(nvlinkDataTX, ThisLink), value(nvlinkDataRX, ThisLink)...), how: perSecond, div: kilobyte},
		{id: 1530, terms: value(nvlinkDataTX, ThisLink), how: perSecond, div: kilobyte},
		{id: 1531, terms: value(nvlinkDataRX, ThisLink), how: perSecond, div: kilobyte},
		{id: 1532, terms: value(nvlinkRawTX, ThisLink), how: perSecond, mul: kibibyte},
		{id: 1533, terms: value(nvlinkRawRX, ThisLink), how: perSecond, mul: kibibyte},
	}
	for i, id := range []uint32{163, 162, 161} {
		out = append(out, reading{id: 497 + field.ID(i), terms: linkTerms(id, maxLinks), anyOf: true, boards: olderLinks, note: notAsDCGM})
	}
	for n := range uint32(namedLinks) {
		out = append(out, oneLink(n)...)
	}
	return append(out, fifthGeneration()...)
}

// oneLink returns the GPU's fields with a link number in their names.
func oneLink(n uint32) []reading {
	id := func(format string) field.ID {
		d, _, ok := field.ByName(fmt.Sprintf(format, n))
		if !ok {
			panic("nvml: the catalogue lacks " + fmt.Sprintf(format, n))
		}
		return d.ID
	}
	return []reading{
		{id: id("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_L%d"), terms: callTerms(getNVLinkErrors, 0, n, linkCRCFlit), boards: olderLinks},
		{id: id("DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_L%d"), terms: callTerms(getNVLinkErrors, 0, n, linkCRCData), boards: olderLinks},
		{id: id("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_L%d"), terms: callTerms(getNVLinkErrors, 0, n, linkReplay), boards: olderLinks},
		{id: id("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_L%d"), terms: callTerms(getNVLinkErrors, 0, n, linkRecovery), boards: olderLinks},
		{id: id("DCGM_FI_DEV_NVLINK_BANDWIDTH_L%d"), terms: append(value(nvlinkDataTX, n), value(nvlinkDataRX, n)...), how: perSecond, div: kilobyte},
		{id: id("DCGM_FI_DEV_NVLINK_TX_BANDWIDTH_L%d"), terms: value(nvlinkDataTX, n), how: perSecond, div: kilobyte},
		{id: id("DCGM_FI_DEV_NVLINK_RX_BANDWIDTH_L%d"), terms: value(nvlinkDataRX, n), how: perSecond, div: kilobyte},
		{id: id("DCGM_FI_PROF_NVLINK_L%d_TX_BYTES"), terms: value(nvlinkRawTX, n), how: perSecond, mul: kibibyte, note: forGPM},
		{id: id("DCGM_FI_PROF_NVLINK_L%d_RX_BYTES"), terms: value(nvlinkRawRX, n), how: perSecond, mul: kibibyte, note: forGPM},
	}
}

// fifth is a counter of NVLink 5: DCGM's field for the whole GPU and this project's field per link.
type fifth struct {
	gpu   field.ID
	value uint32
	link  field.ID
	label collector.Label
}

func fifths() []fifth {
	direction := func(v string) collector.Label { return collector.Label{Name: "direction", Value: v} }
	kind := func(v string) collector.Label { return collector.Label{Name: "kind", Value: v} }
	result := func(v string) collector.Label { return collector.Label{Name: "result", Value: v} }
	out := []fifth{
		{1200, 201, field.NVLinkPackets, direction("tx")},
		{1201, 202, field.NVLinkBytes, direction("tx")},
		{1202, 203, field.NVLinkPackets, direction("rx")},
		{1203, 204, field.NVLinkBytes, direction("rx")},
		{1204, 206, field.NVLinkErrors, kind("malformed_packet")},
		{1205, 207, field.NVLinkErrors, kind("buffer_overrun")},
		{1206, 208, field.NVLinkErrors, kind("receive")},
		{1207, 209, field.NVLinkErrors, kind("remote")},
		{1208, 210, field.NVLinkErrors, kind("general")},
		{1209, 211, field.NVLinkErrors, kind("integrity")},
		{1210, 212, field.NVLinkErrors, kind("transmit_discard")},
		{1211, 213, field.NVLinkRecoveries, result("successful")},
		{1212, 214, field.NVLinkRecoveries, result("failed")},
		{1213, 215, field.NVLinkRecoveryEvents, collector.Label{}},
		{1214, 221, field.NVLinkErrors, kind("symbol")},
		{1219, 219, field.NVLinkErrors, kind("effective")},
	}
	for i := range 16 {
		out = append(out, fifth{1404 + field.ID(i), 235 + uint32(i), field.NVLinkFEC, collector.Label{Name: "corrected", Value: strconv.Itoa(i)}})
	}
	return out
}

// fifthGeneration returns the counters of NVLink 5, as totals and per link. If the driver refuses a total, the links
// are added up; for error rates the worst link counts.
func fifthGeneration() []reading {
	const summed, worst = "the sum over the links, if the driver refuses the total", "the worst link, if the driver refuses a value for all"
	var out []reading
	for _, f := range fifths() {
		out = append(out,
			reading{id: f.gpu, terms: value(f.value, AllLinks), boards: blackwellLinks},
			reading{id: f.gpu, terms: linkTerms(f.value, maxLinks), anyOf: true, boards: blackwellLinks, note: summed},
			reading{id: f.link, terms: value(f.value, ThisLink), boards: blackwellLinks, label: f.label})
	}
	for _, ber := range []struct {
		raw   field.ID // and after it the ratio
		value uint32
		kind  string
	}{{1215, 222, "symbol"}, {1217, 220, "effective"}} {
		out = append(out,
			reading{id: ber.raw, terms: value(ber.value, AllLinks), boards: blackwellLinks},
			reading{id: ber.raw + 1, terms: value(ber.value, AllLinks), how: asBitErrors, boards: blackwellLinks},
			reading{id: ber.raw + 1, terms: linkTerms(ber.value, maxLinks), how: worstBitErrors, anyOf: true, boards: blackwellLinks, note: worst},
			reading{id: field.NVLinkBER, terms: value(ber.value, ThisLink), how: asBitErrors, boards: blackwellLinks, label: collector.Label{Name: "kind", Value: ber.kind}})
	}
	return out
}
