//go:build linux && cgo

package nvml

import "warpgauge/pkg/field"

// What a GPU is and does: identity, clocks, temperatures, power, load, memory.
// Arguments are enums of nvml.h.

const (
	clockGraphics, clockSM, clockMemory, clockVideo                  = 0, 1, 2, 3 // nvmlClockType_t
	sensorGPU                                                        = 0          // nvmlTemperatureSensors_t
	thresholdShutdown, thresholdSlowdown, thresholdMem, thresholdGPU = 0, 1, 2, 3 // nvmlTemperatureThresholds_t
	scopeNUMANode                                                    = 0          // NVML_AFFINITY_SCOPE_NODE
)

const (
	maskNote     = "a mask that a 64-bit float cannot hold exactly is left out"
	vgpuHosts    = "hosts of virtual machines"
	maxwellTesla = "some boards up to Maxwell"
)

var identityReadings = []reading{
	{id: 4, terms: of(getDeviceCount, 0)},
	{id: 5, terms: of(getCUDAVersion, 0)},
	{id: 52, terms: of(getIndex, 0)},
	{id: 55, terms: of(getMinorNumber, 0)},
	{id: 58, terms: of(getPCIInfo, 0)},
	{id: 59, terms: of(getPCIInfo, 1)},
	{id: 63, terms: append(of(getComputeCapability, 0), of(getComputeCapability, 1)...), how: asCapability},
	{id: 65, terms: of(getComputeMode, 0), how: asComputeMode},
	{id: 66, terms: of(getPersistenceMode, 0)},
	{id: 67, terms: of(getMIGMode, 0), boards: "Ampere and newer with MIG", note: "left out if there is no MIG; DCGM says 0"},
	{id: 69, terms: of(getMaxMIGDevices, 0), how: unlessZero, boards: "Ampere and newer with MIG", note: "0, which some drivers say while MIG is off, is left out"},
	{id: 70, terms: of(getCPUAffinity, 0), note: maskNote},
	{id: 71, terms: of(getCPUAffinity, 1), note: maskNote},
	{id: 72, terms: of(getCPUAffinity, 2), note: maskNote},
	{id: 73, terms: of(getCPUAffinity, 3), note: maskNote},
	{id: 74, terms: of(getCCState, 0), boards: "Ampere and newer"},
	{id: 83, terms: of(getInforomChecksum, 0), boards: "with an InfoROM"},
	{id: 84, terms: of(getInforomValid, 0), boards: "with an InfoROM", note: "the check itself is made on the GPU"},
	{id: 86, terms: of(getMemoryAffinity, 0, scopeNUMANode), note: maskNote},
	{id: 87, terms: of(getMemoryAffinity, 1, scopeNUMANode), note: maskNote},
	{id: 88, terms: of(getMemoryAffinity, 2, scopeNUMANode), note: maskNote},
	{id: 89, terms: of(getMemoryAffinity, 3, scopeNUMANode), note: maskNote},
	{id: 94, terms: of(getGPMSupport, 0), boards: "all; 1 from Hopper"},
	{id: 500, terms: of(getVirtualizationMode, 0)},
	{id: 522, terms: of(getVGPUType, 0), boards: vgpuHosts},
	{id: 525, terms: of(getVGPUMemory, 0), div: mebibyte, boards: vgpuHosts},
	{id: 526, terms: of(getGridLicence, 0), note: "0 if licensing does not concern the GPU, as in DCGM"},
	{id: 526, terms: of(getVGPULicence, 0), boards: vgpuHosts},
	{id: 527, terms: of(getVGPUFrameRate, 0), boards: vgpuHosts},
	{id: 534, terms: of(getVGPUInstance, 0), boards: vgpuHosts, note: "blank if the vGPU is not of a MIG instance"},
}

var clockReadings = []reading{
	// A clock that is gated reads 0, which is what it runs at.
	{id: 100, terms: of(getClockInfo, 0, clockSM)},
	{id: 101, terms: of(getClockInfo, 0, clockMemory)},
	{id: 102, terms: of(getClockInfo, 0, clockVideo)},
	{id: 110, terms: of(getApplicationsClock, 0, clockGraphics), how: unlessZero},
	{id: 111, terms: of(getApplicationsClock, 0, clockMemory), how: unlessZero},
	{id: 112, terms: of(getClockEventReasons, 0)},
	{id: 113, terms: of(getMaxClockInfo, 0, clockSM), how: unlessZero},
	{id: 114, terms: of(getMaxClockInfo, 0, clockMemory), how: unlessZero},
	{id: 115, terms: of(getMaxClockInfo, 0, clockVideo), how: unlessZero},
	{id: 120, terms: of(getAutoBoost, 0), boards: maxwellTesla},
	{id: 190, terms: of(getPState, 0), how: asPState, note: "an unknown state is left out; DCGM says 32"},
}

var thermalReadings = []reading{
	{id: 140, terms: value(82), how: unlessZero, boards: "with HBM, and some with GDDR6X",
		note: "0 is what boards without the sensor say, and is left out; DCGM passes it on"},
	{id: 150, terms: of(getTemperature, 0, sensorGPU)},
	{id: 151, terms: of(getTemperatureThreshold, 0, thresholdMem), how: unlessZero},
	{id: 152, terms: of(getTemperatureThreshold, 0, thresholdGPU), how: unlessZero},
	{id: 153, terms: of(getMarginTemperature, 0)},
	{id: 158, terms: of(getTemperatureThreshold, 0, thresholdSlowdown), how: unlessZero},
	{id: 159, terms: of(getTemperatureThreshold, 0, thresholdShutdown), how: unlessZero},
	{id: 191, terms: of(getFanSpeed, 0), boards: "with a fan"},
}

const milliwatts = 1000 // in a watt

const percent = 100

const wholeWatts = "DCGM cuts off what is less than a watt"

var powerReadings = []reading{
	{id: 155, terms: of(getPowerUsage, 0), how: unlessZero, div: milliwatts, note: "0 is what GPUs without a sensor say, and is left out"},
	{id: 156, terms: value(83), how: climbing, boards: "Volta and newer"},
	{id: 156, terms: of(getTotalEnergy, 0), how: climbing, boards: "Volta and newer"},
	{id: 157, terms: value(186), how: unlessZero, div: milliwatts},
	{id: 160, terms: of(getPowerLimit, 0), how: unlessZero, div: milliwatts, note: wholeWatts},
	{id: 161, terms: of(getPowerLimitRange, 0), how: unlessZero, div: milliwatts, note: wholeWatts},
	{id: 162, terms: of(getPowerLimitRange, 1), how: unlessZero, div: milliwatts, note: wholeWatts},
	{id: 163, terms: of(getPowerDefaultLimit, 0), how: unlessZero, div: milliwatts, note: wholeWatts},
	{id: 164, terms: of(getEnforcedPowerLimit, 0), how: unlessZero, div: milliwatts, note: wholeWatts},
}

var utilizationReadings = []reading{
	{id: 203, terms: of(getUtilization, 0), boards: "not while MIG is on"},
	{id: 204, terms: of(getUtilization, 1), boards: "not while MIG is on"},
	{id: 206, terms: of(getEncoderUtilization, 0), boards: "with an encoder, not while MIG is on"},
	{id: 207, terms: of(getDecoderUtilization, 0), boards: "with a decoder, not while MIG is on"},
	{id: field.NVIDIAJPEGBusy, terms: of(getJPGUtilization, 0), div: percent, boards: "Turing and newer, not while MIG is on"},
	{id: field.NVIDIAOFABusy, terms: of(getOFAUtilization, 0), div: percent, boards: "Turing and newer, not while MIG is on"},
	{id: field.NVIDIAComputeProcesses, terms: of(getComputeProcesses, 0), note: "how many there are, also those of other users; which they are is not asked"},
	{id: field.NVIDIAGraphicsProcesses, terms: of(getGraphicsProcesses, 0)},
}

// violationReadings are times in which clocks were held down, in ns. Those from
// 240 on are DCGM's, from 1420 on the same under the names of the clock events.
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

// smoothingReadings are those of power smoothing.
var smoothingReadings = func() []reading {
	out := make([]reading, 18)
	for i := range out { // DCGM's fields and NVML's have the same order
		id := firstMoving + uint32(i)
		out[i] = reading{id: 1425 + field.ID(i), terms: value(id), boards: "Blackwell and newer", note: moved(id)}
	}
	return out
}()

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
func ofTotal(c *call, pick int) []term { return append(of(c, pick), of(c, 0)...) }

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
	eccModeAsCall = "a call by itself: if ECC is off NVML leaves the field as it was (NVIDIA bug 2009232)"
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
