//go:build linux && cgo

package nvml

import (
	"fmt"
	"strconv"

	"warpgauge/pkg/collector"
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
	mayWrap     = forGPM + "; nvml.h says that the counter can wrap, so it is blank until it has shown that it has more than 32 bits, which wrap within a second"
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
	{id: 1009, terms: value(197), how: perSecondWide, note: mayWrap},
	{id: 1010, terms: value(198), how: perSecondWide, note: mayWrap},
	{id: 1091, terms: value(197), how: climbingWide, note: mayWrap},
	{id: 1092, terms: value(198), how: climbingWide, note: mayWrap},
	{id: 1501, terms: value(173)},
}

const (
	withC2C        = "Grace Hopper, Grace Blackwell"
	firstLink      = "of link 0, as in DCGM"
	notAsDCGM      = "of all links; DCGM has that of link 0"
	withFabric     = "Hopper and newer with NVSwitch"
	inChassis      = "Blackwell and newer in a chassis"
	unknown255     = "255, which means unknown, is left out"
	blackwellLinks = "NVLink 5: Blackwell and newer"
	olderLinks     = "NVLink up to 4: not Blackwell"
)

func fabricReadings() []reading {
	out := []reading{
		{id: 170, terms: append(of(getFabricInfo, 0), of(getFabricInfo, 1)...), how: asFabricStatus, boards: withFabric},
		{id: 171, terms: append(of(getFabricInfo, 0), of(getFabricInfo, 1)...), how: asFabricError, boards: withFabric},
		{id: 173, terms: of(getFabricInfo, 2), boards: withFabric},
		{id: 174, terms: of(getFabricInfo, 3), boards: withFabric},
		{id: 175, terms: of(getFabricSummary, 0), boards: withFabric},
		{id: 285, terms: value(170), boards: withC2C},
		{id: 286, terms: c2c(171), how: lowest, anyOf: true, boards: withC2C, note: "1 if all links are active; DCGM has that of link 0"},
		{id: 287, terms: value(172), boards: withC2C, note: firstLink},
		{id: 1400, terms: c2c(231), anyOf: true, boards: withC2C, note: notAsDCGM},
		{id: 1401, terms: c2c(232), anyOf: true, boards: withC2C, note: notAsDCGM},
		{id: 1402, terms: c2c(233), anyOf: true, boards: withC2C, note: notAsDCGM},
		{id: 1403, terms: value(234), boards: withC2C, note: firstLink},
		{id: 1523, terms: value(230)},
	}
	for i := range 5 { // slot, tray, host, kind of peer, module
		out = append(out, reading{id: 573 + field.ID(i), terms: of(getPlatformInfo, i), boards: inChassis, note: unknown255})
	}
	return out
}

// mostC2C is how many chip-to-chip links GPM's metrics count with.
const mostC2C = 14

// c2c is a field of all chip-to-chip links.
func c2c(id uint32) []term { return ofLinks(id, mostC2C) }

// ofLinks is a field of each of so many links.
func ofLinks(id uint32, links int) (out []term) {
	for n := range uint32(links) {
		out = append(out, value(id, n)...)
	}
	return out
}

const (
	mostLinks  = 36 // NVML_NVLINK_MAX_LINKS
	namedLinks = 18 // for which DCGM has separate fields, …_L0 to …_L17
)

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
	for i, id := range []uint32{163, 162, 161} {
		out = append(out, reading{id: 497 + field.ID(i), terms: ofLinks(id, mostLinks), anyOf: true, boards: olderLinks, note: notAsDCGM})
	}
	for n := range uint32(namedLinks) {
		out = append(out, oneLink(n)...)
	}
	out = append(out, perLink()...)
	return append(out, fifthGeneration()...)
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

// fifth is a counter of NVLink 5: a field of the GPU, of which DCGM has no other in its
// list, and ours of each link.
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

// fifthGeneration are the counters of NVLink 5, over all links and of each. Where the
// driver refuses the total, links are added up; of error rates the worst is taken.
func fifthGeneration() []reading {
	const summed, worst = "the sum of the links, if the driver refuses the total", "the worst link's, if the driver refuses that of all"
	var out []reading
	for _, f := range fifths() {
		out = append(out,
			reading{id: f.gpu, terms: value(f.value, AllLinks), boards: blackwellLinks},
			reading{id: f.gpu, terms: ofLinks(f.value, mostLinks), anyOf: true, boards: blackwellLinks, note: summed},
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
			reading{id: ber.raw + 1, terms: ofLinks(ber.value, mostLinks), how: worstBitErrors, anyOf: true, boards: blackwellLinks, note: worst},
			reading{id: field.NVLinkBER, terms: value(ber.value, ThisLink), how: asBitErrors, boards: blackwellLinks, label: collector.Label{Name: "kind", Value: ber.kind}})
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
