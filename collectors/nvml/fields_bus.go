//go:build linux && cgo

package nvml

import (
	"fmt"

	"warpgauge/pkg/field"
)

// PCIe, NVLink, chip-to-chip links and the NVLink fabric.

const (
	kilobyte = 1000
	kibibyte = 1024
)

const (
	fromCounter = "from a counter; fallback: nvmlDeviceGetPcieThroughput"
	blocks      = "NVML measures for 20 ms in each call, so a separate goroutine asks; DCGM does not supply it any more"
	forGPM      = "only if GPM does not supply it"
)

var pcieReadings = []reading{
	{id: 200, terms: value(197), how: perSecondWide, div: kilobyte, note: fromCounter},
	{id: 200, terms: of(getPCIeThroughput, 0, 0), note: blocks},
	{id: 201, terms: value(198), how: perSecondWide, div: kilobyte, note: fromCounter},
	{id: 201, terms: of(getPCIeThroughput, 0, 1), note: blocks},
	{id: 202, terms: of(getPCIeReplay, 0)},
	{id: 235, terms: of(getPCIeMaxGen, 0), how: unlessZero},
	{id: 236, terms: of(getPCIeMaxWidth, 0), how: unlessZero},
	{id: 237, terms: of(getPCIeGen, 0), how: unlessZero},
	{id: 238, terms: of(getPCIeWidth, 0), how: unlessZero},
	{id: 1009, terms: value(197), how: perSecondWide, note: forGPM},
	{id: 1010, terms: value(198), how: perSecondWide, note: forGPM},
	{id: 1091, terms: value(197), how: climbing, note: forGPM},
	{id: 1092, terms: value(198), how: climbing, note: forGPM},
	{id: 1501, terms: value(173)},
}

const (
	withC2C        = "Grace Hopper, Grace Blackwell"
	firstLink      = "of link 0, as in DCGM"
	blackwellLinks = "NVLink 5: Blackwell and newer"
	olderLinks     = "NVLink up to 4: not Blackwell"
)

var fabricReadings = []reading{
	{id: 170, terms: append(of(getFabricInfo, 0), of(getFabricInfo, 1)...), how: asFabricStatus, boards: "Hopper and newer with NVSwitch"},
	{id: 171, terms: append(of(getFabricInfo, 0), of(getFabricInfo, 1)...), how: asFabricError, boards: "Hopper and newer with NVSwitch"},
	{id: 173, terms: of(getFabricInfo, 2), boards: "Hopper and newer with NVSwitch"},
	{id: 174, terms: of(getFabricInfo, 3), boards: "Hopper and newer with NVSwitch"},
	{id: 175, terms: of(getFabricSummary, 0), boards: "Hopper and newer with NVSwitch"},
	{id: 285, terms: value(170), boards: withC2C},
	{id: 286, terms: value(171), boards: withC2C, note: firstLink},
	{id: 287, terms: value(172), boards: withC2C, note: firstLink},
	{id: 573, terms: of(getPlatformInfo, 0), boards: "Blackwell and newer in a chassis"},
	{id: 574, terms: of(getPlatformInfo, 1), boards: "Blackwell and newer in a chassis"},
	{id: 575, terms: of(getPlatformInfo, 2), boards: "Blackwell and newer in a chassis"},
	{id: 576, terms: of(getPlatformInfo, 3), boards: "Blackwell and newer in a chassis"},
	{id: 577, terms: of(getPlatformInfo, 4), boards: "Blackwell and newer in a chassis"},
	{id: 1400, terms: value(231), boards: withC2C, note: firstLink},
	{id: 1401, terms: value(232), boards: withC2C, note: firstLink},
	{id: 1402, terms: value(233), boards: withC2C, note: firstLink},
	{id: 1403, terms: value(234), boards: withC2C, note: firstLink},
	{id: 1523, terms: value(230)},
}

// mostLinks is NVML_NVLINK_MAX_LINKS of the GPUs for whose links DCGM has
// separate fields.
const mostLinks = 18

// Fields of nvmlDeviceGetFieldValues. Traffic is in KiB.
const (
	nvlinkDataTX, nvlinkDataRX = 138, 139
	nvlinkRawTX, nvlinkRawRX   = 140, 141 // with headers
)

// Counters of nvmlDeviceGetNvLinkErrorCounter.
const (
	linkReplay, linkRecovery, linkCRCFlit, linkCRCData = 0, 1, 2, 3
)

// nvlinkReadings: DCGM divides KiB per second by 1000 and calls that MB/s.
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
	}
	out = append(out, errorsOfAllLinks(497, 163), errorsOfAllLinks(498, 162), errorsOfAllLinks(499, 161))
	for n := range uint32(mostLinks) {
		out = append(out, oneLink(n)...)
	}
	out = append(out, linkCounters()...)
	return append(out, perLink()...)
}

// errorsOfAllLinks adds up a field that is counted by link.
func errorsOfAllLinks(id field.ID, of uint32) reading {
	r := reading{id: id, anyOf: true, boards: olderLinks, note: "the sum of all links; DCGM has that of link 0"}
	for n := range uint32(mostLinks) {
		r.terms = append(r.terms, value(of, n)...)
	}
	return r
}

// oneLink are the fields of a GPU that carry the number of a link in their name.
func oneLink(n uint32) []reading {
	id := func(format string) field.ID { return named(fmt.Sprintf(format, n)) }
	return []reading{
		{id: id("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_L%d"), terms: of(getNVLinkErrors, 0, n, linkCRCFlit), boards: olderLinks},
		{id: id("DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_L%d"), terms: of(getNVLinkErrors, 0, n, linkCRCData), boards: olderLinks},
		{id: id("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_L%d"), terms: of(getNVLinkErrors, 0, n, linkReplay), boards: olderLinks},
		{id: id("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_L%d"), terms: of(getNVLinkErrors, 0, n, linkRecovery), boards: olderLinks},
		{id: id("DCGM_FI_DEV_NVLINK_BANDWIDTH_L%d"), terms: append(value(nvlinkDataTX, n), value(nvlinkDataRX, n)...), how: perSecond, div: kilobyte},
		{id: id("DCGM_FI_DEV_NVLINK_TX_BANDWIDTH_L%d"), terms: value(nvlinkDataTX, n), how: perSecond, div: kilobyte},
		{id: id("DCGM_FI_DEV_NVLINK_RX_BANDWIDTH_L%d"), terms: value(nvlinkDataRX, n), how: perSecond, div: kilobyte},
		{id: id("DCGM_FI_PROF_NVLINK_L%d_TX_BYTES"), terms: value(nvlinkRawTX, n), how: perSecond, mul: kibibyte, note: forGPM},
		{id: id("DCGM_FI_PROF_NVLINK_L%d_RX_BYTES"), terms: value(nvlinkRawRX, n), how: perSecond, mul: kibibyte, note: forGPM},
	}
}

// named is the id of a field that is known to exist.
func named(name string) field.ID {
	d, _, ok := field.ByName(name)
	if !ok {
		panic("nvml: the catalogue lacks " + name)
	}
	return d.ID
}

// linkCounters are NVLink 5's, over all links.
func linkCounters() []reading {
	var out []reading
	add := func(id field.ID, value uint32, how convert) {
		out = append(out, reading{id: id, terms: of(getFieldValues, 0, value, AllLinks), how: how, boards: blackwellLinks})
	}
	for i, f := range []uint32{201, 202, 203, 204, 206, 207, 208, 209, 210, 211, 212, 213, 214, 215, 221} {
		add(1200+field.ID(i), f, asIs)
	}
	const symbolBER, effectiveErrors, effectiveBER, firstFEC = 222, 219, 220, 235
	add(1215, symbolBER, asIs)
	add(1216, symbolBER, asBitErrors)
	add(1217, effectiveBER, asIs)
	add(1218, effectiveBER, asBitErrors)
	add(1219, effectiveErrors, asIs)
	for i := range uint32(16) {
		add(1404+field.ID(i), firstFEC+i, asIs)
	}
	return out
}

// perLink are the fields of a link.
func perLink() []reading {
	return []reading{
		{id: 1508, terms: value(165, ThisLink)},
		{id: 1525, terms: of(getNVLinkErrors, 0, ThisLink, linkCRCFlit), boards: olderLinks},
		{id: 1526, terms: of(getNVLinkErrors, 0, ThisLink, linkCRCData), boards: olderLinks},
		{id: 1527, terms: of(getNVLinkErrors, 0, ThisLink, linkReplay), boards: olderLinks},
		{id: 1528, terms: of(getNVLinkErrors, 0, ThisLink, linkRecovery), boards: olderLinks},
		{id: 1529, terms: append(value(nvlinkDataTX, ThisLink), value(nvlinkDataRX, ThisLink)...), how: perSecond, div: kilobyte},
		{id: 1530, terms: value(nvlinkDataTX, ThisLink), how: perSecond, div: kilobyte},
		{id: 1531, terms: value(nvlinkDataRX, ThisLink), how: perSecond, div: kilobyte},
		{id: 1532, terms: value(nvlinkRawTX, ThisLink), how: perSecond, mul: kibibyte},
		{id: 1533, terms: value(nvlinkRawRX, ThisLink), how: perSecond, mul: kibibyte},
	}
}
