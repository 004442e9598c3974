package rocm

import (
	"slices"
	"strconv"
	"strings"

	gm "warpgauge/collectors/rocm/internal/gpumetrics"
	"warpgauge/collectors/rocm/internal/sysfs"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Conversions.
const (
	toMiB        = 1.0 / (1 << 20)
	toPercent    = 100.0
	fromPercent  = 0.01
	toHertz      = 1e6              // from MHz
	toMillijoule = 1000.0 / 65536   // from 2⁻¹⁶ J; AMD's libraries round the unit to 15.3 µJ, 0.3 % too much
	toBusy       = 1e-5             // from percent × ms per second to a ratio; for a sum, to seconds
	toVolt       = 1e-3             // from mV
	toBytes      = 1024.0           // from the driver's "KB"
	toMB         = 1024.0 / 1024000 // from the driver's "KB" to DCGM's MB of 1000 × 1024 bytes
	toKB         = 1e-3             // from bytes
	fromGB       = 1e9              // also from GT
	fromMbit     = 1e6 / 8
)

// Maximum growth of 32-bit counters per second.
const (
	maxBusyRate  = 100 * 1000 // percent × ms
	maxCycleRate = 1000       // the firmware's cycles: 5,008 in 5 s on an MI300X
)

// residencies are the counters of throttled cycles, in the order of package gpumetrics, with the throttle bits that they
// stand for.
var residencies = []struct { //nolint:gochecknoglobals // a constant
	field  gm.Field
	reason string
	mask   uint64
}{
	{gm.ProchotResidency, "prochot", throttleProchot}, {gm.PPTResidency, "ppt", throttlePower},
	{gm.SocketThmResidency, "socket_thermal", throttleThermal}, {gm.VRThmResidency, "vr_thermal", throttleThermal},
	{gm.HBMThmResidency, "hbm_thermal", throttleThermal},
}

// boardSpecs returns the possible columns of a GPU.
func boardSpecs(g *sysfs.GPU, n node, more boardFacts) []spec {
	return slices.Concat(
		identitySpecs(g, n), clockSpecs(g), temperatureSpecs(), powerSpecs(g), utilisationSpecs(), memorySpecs(more),
		busSpecs(g), errorSpecs(), throttleSpecs(g), fabricSpecs(), hardwareSpecs(g), processSpecs(-1, units(g)), addedSpecs(more),
	)
}

// node is the position of a GPU among all GPUs.
type node struct {
	index, count int
}

func units(g *sysfs.GPU) int {
	sum := 0
	for _, i := range g.Instances {
		sum += i.Units
	}
	return sum
}

func fixed(id field.ID, v float64, labels ...collector.Label) spec {
	return spec{field: id, labels: labels, terms: []term{{op: opFixed, scale: v}}}
}

func one(id field.ID, terms ...term) spec { return spec{field: id, terms: terms} }

func identitySpecs(g *sysfs.GPU, n node) []spec {
	out := []spec{fixed(dcgmCount, float64(n.count)), fixed(dcgmIndex, float64(n.index))}
	if minor, err := strconv.Atoi(strings.TrimPrefix(g.Card, "card")); err == nil {
		out = append(out, fixed(dcgmMinor, float64(minor)))
	}
	if g.Compute != "" {
		out = append(out, fixed(field.AMDPartition, 1,
			collector.Label{Name: "compute", Value: g.Compute}, collector.Label{Name: "memory", Value: g.Memory}))
	}
	for i, what := range []string{unreadMetrics: "gpu_metrics", unreadAttributes: "attributes", unreadPartitions: "partitions"} {
		out = append(out, spec{field.AMDUnread, label("what", what), []term{{op: opUnread, first: i, scale: 1}}})
	}
	return out
}

func clockSpecs(g *sysfs.GPU) []spec {
	sources := []struct {
		name   string
		clock  uint8
		sensor bool // of hwmon
		metric term // used if the driver has no file
	}{
		{"gfx", sysfs.ClockGraphics, true, over(opMax, 1, 0, gm.GfxClocks, gm.CurrentGfxclk)},
		{"mem", sysfs.ClockMemory, true, over(opMax, 1, 0, gm.Dies, gm.CurrentUclk)},
		{"fabric", sysfs.ClockFabric, false, metric(gm.CurrentFclk, 0, 1)},
		{"soc", sysfs.ClockSystem, false, over(opMax, 1, 0, gm.Clocks, gm.CurrentSocclk)},
		{"video", sysfs.ClockVideo, false, over(opMax, 1, 0, gm.Clocks, gm.CurrentVclk0)},
		{"decode", sysfs.ClockDecode, false, over(opMax, 1, 0, gm.Clocks, gm.CurrentDclk0)},
	}
	var out []spec
	for i, s := range sources {
		terms := func(scale float64) []term {
			m := s.metric
			m.scale *= scale
			out := []term{rawTerm(sysfs.Clock, s.clock, scale)}
			if familyOf(g.Device) == otherFamily && s.sensor { // an idle Radeon may mark none of the levels
				out = append(out, rawTerm(sysfs.ClockSensor, s.clock, scale))
			}
			return append(out, m)
		}
		if dcgm := []field.ID{field.SMClock, dcgmMemClock, 0, 0, dcgmVideoClock, 0}[i]; dcgm != 0 {
			out = append(out, one(dcgm, terms(1)...))
		}
		if dcgm := []field.ID{dcgmMaxSMClock, dcgmMaxMemClock, 0, 0, dcgmMaxVideoClock, 0}[i]; dcgm != 0 {
			out = append(out, one(dcgm, rawTerm(sysfs.ClockMax, s.clock, 1)))
		}
		out = append(out,
			spec{field.AMDClock, label("clock", s.name), terms(toHertz)},
			spec{field.AMDClockMin, label("clock", s.name), []term{rawTerm(sysfs.ClockMin, s.clock, toHertz)}},
			spec{field.AMDClockMax, label("clock", s.name), []term{rawTerm(sysfs.ClockMax, s.clock, toHertz)}})
	}
	for i := range gm.Clocks {
		engine := func(name string) []collector.Label {
			return []collector.Label{{Name: "clock", Value: name}, {Name: "instance", Value: strconv.Itoa(i)}}
		}
		out = append(out,
			spec{field.AMDEngineClock, engine("video"), []term{metric(gm.CurrentVclk0, i, toHertz)}},
			spec{field.AMDEngineClock, engine("decode"), []term{metric(gm.CurrentDclk0, i, toHertz)}})
	}
	for i := range gm.GfxClocks {
		out = append(out, spec{field.AMDXCCClock, label("xcc", strconv.Itoa(i)), []term{metric(gm.CurrentGfxclk, i, toHertz)}})
	}
	return out
}

func temperatureSpecs() []spec {
	// MI300 has no edge sensor; the junction's value replaces it.
	gpu := func(k sysfs.Kind) []term {
		return []term{rawTerm(k, sysfs.SensorEdge, 1), rawTerm(k, sysfs.SensorJunction, 1).orElse(1)}
	}
	// Boards without sensors for memory or voltage regulators report 0.
	memory := []term{rawTerm(sysfs.Temperature, sysfs.SensorMemory, 1), metric(gm.TemperatureMem, 0, 1).nonzeroOnly()}
	out := []spec{
		one(dcgmMemoryTemp, memory...),
		one(field.GPUTemperature,
			rawTerm(sysfs.Temperature, sysfs.SensorEdge, 1), metric(gm.TemperatureEdge, 0, 1),
			rawTerm(sysfs.Temperature, sysfs.SensorJunction, 1).orElse(1), metric(gm.TemperatureHotspot, 0, 1).orElse(1),
			metric(gm.TemperatureGfx, 0, 1).orElse(2)),
		one(field.SlowdownTemperature, gpu(sysfs.TemperatureCrit)...),
		one(dcgmShutdownTemp, gpu(sysfs.TemperatureStop)...),
	}
	sensor := func(name string, terms ...term) {
		out = append(out, spec{field.AMDTemperature, label("sensor", name), terms})
	}
	sensor("edge", rawTerm(sysfs.Temperature, sysfs.SensorEdge, 1), metric(gm.TemperatureEdge, 0, 1))
	sensor("junction", rawTerm(sysfs.Temperature, sysfs.SensorJunction, 1), metric(gm.TemperatureHotspot, 0, 1))
	sensor("mem", memory...)
	sensor("vrgfx", metric(gm.TemperatureVRGfx, 0, 1).nonzeroOnly())
	sensor("vrsoc", metric(gm.TemperatureVRSoc, 0, 1).nonzeroOnly())
	sensor("vrmem", metric(gm.TemperatureVRMem, 0, 1).nonzeroOnly())
	sensor("soc", metric(gm.TemperatureSoc, 0, 1))
	for i := range gm.HBMStacks {
		sensor("hbm"+strconv.Itoa(i), metric(gm.TemperatureHBM, i, 1).nonzeroOnly())
	}
	return out
}

// family is the family of an ASIC, which decides the meaning of gpu_metrics 1.0 to 1.3.
type family uint8

const (
	otherFamily family = iota
	mi100
	mi200
	mi300 // and MI350
	navi1x
)

// familyOf returns the family of a PCI device ID (pciidlist in amdgpu_drv.c: CHIP_ARCTURUS, CHIP_ALDEBARAN, CHIP_NAVI10,
// CHIP_NAVI14, CHIP_NAVI12; MI300 and MI350 from AMD's list of PCI IDs).
func familyOf(device uint16) family {
	switch device {
	case 0x738c, 0x7388, 0x738e, 0x7390:
		return mi100
	case 0x7408, 0x740c, 0x740f, 0x7410:
		return mi200
	case 0x7310, 0x7312, 0x7318, 0x7319, 0x731a, 0x731b, 0x731e, 0x731f, 0x7340, 0x7341, 0x7347, 0x734f, 0x7360, 0x7362:
		return navi1x
	}
	if block := device &^ 0x1f; block == 0x74a0 || block == 0x75a0 {
		return mi300
	}
	return otherFamily
}

// powerSpecs returns the columns of power and energy. A running board always draws power, so 0 means that the package's
// other die reports it (MI250). Unit and width of the energy are known for MI200 and for MI300 and later, whose revisions
// are 1.4 and later (aldebaran_ppt.c, smu_v13_0_6_ppt.c). Other boards copy a 32-bit counter whose unit is unknown.
func powerSpecs(g *sysfs.GPU) []spec {
	energy := []term{metric(gm.EnergyAccumulator, 0, toMillijoule).nonzeroOnly()}
	if f := familyOf(g.Device); f == mi200 || f == mi300 {
		energy = append(energy, metric(gm.EnergyByASIC, 0, toMillijoule).nonzeroOnly())
	}
	average := []term{rawTerm(sysfs.PowerAverage, 0, 1).nonzeroOnly(), metric(gm.AverageSocketPower, 0, 1).nonzeroOnly()}
	instant := []term{rawTerm(sysfs.PowerInput, 0, 1).nonzeroOnly(), metric(gm.CurrentSocketPower, 0, 1).nonzeroOnly()}
	either := slices.Clone(average)
	for _, t := range instant {
		either = append(either, t.orElse(1))
	}
	return []spec{
		one(field.PowerUsage, either...),
		one(dcgmPowerInstant, instant...),
		one(field.AMDPowerAverage, average...),
		one(field.TotalEnergy, energy...),
		one(dcgmPowerLimit, rawTerm(sysfs.PowerCap, 0, 1).nonzeroOnly()),
		one(dcgmPowerEnforced, rawTerm(sysfs.PowerCap, 0, 1).nonzeroOnly()),
		one(dcgmPowerLimitMin, rawTerm(sysfs.PowerCapMin, 0, 1)),
		one(dcgmPowerLimitMax, rawTerm(sysfs.PowerCapMax, 0, 1).nonzeroOnly()),
		one(dcgmPowerLimitDef, rawTerm(sysfs.PowerCapDefault, 0, 1).nonzeroOnly()),
	}
}

// utilisationSpecs returns the columns of utilisation. DCGM_FI_DEV_GPU_UTIL and MEM_COPY_UTIL are the driver's current
// percentages, as in AMD's tools. DCGM_FI_PROF_GR_ENGINE_ACTIVE and DRAM_ACTIVE are exact means since the last sample:
// the firmware adds up every millisecond, so no burst is lost at any interval.
func utilisationSpecs() []spec {
	video := []term{
		over(opMean, 1, 0, gm.Partitions*gm.VCNs, gm.XCPVCNBusy),
		over(opMean, 1, 0, gm.VCNs, gm.VCNActivity),
		metric(gm.AverageMMActivity, 0, 1),
	}
	return []spec{
		one(field.GPUUtilization, rawTerm(sysfs.Busy, 0, 1), metric(gm.AverageGfxActivity, 0, 1)),
		one(dcgmMemUtil, rawTerm(sysfs.MemoryBusy, 0, 1), metric(gm.AverageUmcActivity, 0, 1)),
		one(dcgmEncUtil, video...),
		one(dcgmDecUtil, video...),
		one(field.EngineActive, over(opRate, toBusy, 0, 1, gm.GfxActivityAcc)),
		one(dcgmDRAMActive, over(opRate, toBusy, 0, 1, gm.MemActivityAcc)),
		{field.AMDBusySeconds, label("engine", "gfx"), []term{counter(gm.GfxActivityAcc, toBusy, maxBusyRate)}},
		{field.AMDBusySeconds, label("engine", "umc"), []term{counter(gm.MemActivityAcc, toBusy, maxBusyRate)}},
	}
}

func memorySpecs(more boardFacts) []spec {
	total := sysfs.Reading{Kind: sysfs.MemoryTotal, Index: sysfs.MemoryVRAM}
	used := sysfs.Reading{Kind: sysfs.MemoryUsed, Index: sysfs.MemoryVRAM}
	out := []spec{
		one(dcgmFBTotal, rawTerm(sysfs.MemoryTotal, sysfs.MemoryVRAM, toMiB).nonzeroOnly()),
		one(dcgmFBUsed, rawTerm(sysfs.MemoryUsed, sysfs.MemoryVRAM, toMiB)),
		one(dcgmFBFree, pair(opFree, total, used, toMiB)),
		one(dcgmFBUsedRatio, pair(opShare, used, total, 1)),
	}
	out = append(out, one(field.AMDMaxBandwidth, metric(gm.MemMaxBandwidth, 0, fromGB).nonzeroOnly(), term{op: opFixed, scale: more.MemoryBandwidth}))
	for i, name := range []string{sysfs.MemoryVRAM: "vram", sysfs.MemoryVisible: "visible", sysfs.MemoryGTT: "gtt"} {
		out = append(out,
			spec{field.AMDMemoryUsed, label("memory", name), []term{rawTerm(sysfs.MemoryUsed, uint8(i), 1)}},
			spec{field.AMDMemoryFree, label("memory", name), []term{pair(opFree,
				sysfs.Reading{Kind: sysfs.MemoryTotal, Index: uint8(i)}, sysfs.Reading{Kind: sysfs.MemoryUsed, Index: uint8(i)}, 1)}},
			spec{field.AMDMemorySize, label("memory", name), []term{rawTerm(sysfs.MemoryTotal, uint8(i), 1).nonzeroOnly()}})
	}
	return out
}

func busSpecs(g *sysfs.GPU) []spec {
	bus := func(first int, scale float64) term {
		return term{op: opBus, first: first, scale: scale}.within(1, 1, gm.PCIeLinkWidth, g.Bus)
	}
	return []spec{
		one(field.PCIeReplays, rawTerm(sysfs.Replays, 0, 1), metric(gm.PCIeReplay, 0, 1)),
		one(field.PCIeGeneration, rawTerm(sysfs.LinkSpeed, 0, 1).generation(), metric(gm.PCIeLinkSpeed, 0, 1).generation()),
		one(field.PCIeWidth, rawTerm(sysfs.LinkWidth, 0, 1), metric(gm.PCIeLinkWidth, 0, 1)),
		one(field.AMDPCIeSpeed, rawTerm(sysfs.LinkSpeed, 0, fromGB), metric(gm.PCIeLinkSpeed, 0, fromGB)),
		one(field.AMDPCIeSpeedMax, rawTerm(sysfs.LinkSpeedMax, 0, fromGB)),
		one(dcgmMaxLinkGen, rawTerm(sysfs.LinkSpeedMax, 0, 1).generation()),
		one(dcgmMaxLinkWidth, rawTerm(sysfs.LinkWidthMax, 0, 1)),
		one(dcgmPCIeTx, bus(0, 1)),
		one(dcgmPCIeRx, bus(1, 1)),
		one(dcgmPCIeTxKB, bus(0, toKB)),
		one(dcgmPCIeRxKB, bus(1, toKB)),
		one(field.AMDPCIeThroughput, over(opTotal, fromMbit, 0, gm.Dies, gm.PCIeBandwidthInst).within(fromMbit, 2, gm.PCIeLinkWidth, g.Bus)),
		one(field.AMDPCIeRecoveries, metric(gm.PCIeL0ToRecovery, 0, 1)),
		one(field.AMDPCIeRollovers, metric(gm.PCIeReplayRover, 0, 1)),
		{field.AMDPCIeNAKs, label("direction", "received"), []term{metric(gm.PCIeNAKReceived, 0, 1)}},
		{field.AMDPCIeNAKs, label("direction", "sent"), []term{metric(gm.PCIeNAKSent, 0, 1)}},
	}
}

func errorSpecs() []spec {
	sum := func(kinds ...sysfs.Kind) term {
		t := term{op: opSum, scale: 1}
		for _, k := range kinds {
			for b := range sysfs.Blocks {
				t.raw = append(t.raw, sysfs.Reading{Kind: k, Index: b})
			}
		}
		return t
	}
	out := []spec{
		one(field.CorrectedErrors, sum(sysfs.Correctable)),
		one(field.UncorrectedErrors, sum(sysfs.Uncorrectable)),
		one(field.AMDDeferred, sum(sysfs.Deferred)),
		one(field.RetiredPagesUncorrected, rawTerm(sysfs.BadPages, sysfs.PageRetired, 1)),
		one(field.RetiredPagesPending, rawTerm(sysfs.BadPages, sysfs.PagePending, 1)),
		one(field.RowRemapFailure, term{op: opAny, raw: []sysfs.Reading{{Kind: sysfs.BadPages, Index: sysfs.PageFailed}}, scale: 1}),
	}
	for b := range sysfs.Blocks {
		for i, severity := range []string{"ce", "de", "ue"} {
			kind := []sysfs.Kind{sysfs.Correctable, sysfs.Deferred, sysfs.Uncorrectable}[i]
			out = append(out, spec{field.AMDRASErrors,
				[]collector.Label{{Name: "block", Value: sysfs.BlockName(b)}, {Name: "severity", Value: severity}},
				[]term{rawTerm(kind, b, 1)}})
		}
	}
	for i, state := range []string{sysfs.PageRetired: "retired", sysfs.PagePending: "pending", sysfs.PageFailed: "failed"} {
		out = append(out, spec{field.AMDBadPages, label("state", state), []term{rawTerm(sysfs.BadPages, uint8(i), 1)}})
	}
	return out
}

// throttleSpecs returns the columns of throttling. Boards up to MI200 and Radeons report bits. MI300 reports, since
// revision 1.6, the number of throttled cycles; its bits are always 0 and mean nothing ("Throttle status is not
// reported through metrics now" in smu_v13_0_6_ppt.c).
func throttleSpecs(g *sysfs.GPU) []spec {
	const cycles = gm.AccumulationCounter
	count := func(op op, f ...gm.Field) term { return over(op, 1, 0, 1, f...) }
	var out []spec
	add := func(id field.ID, labels []collector.Label, op op, mask uint64, counts ...gm.Field) {
		var terms []term
		if f := familyOf(g.Device); f != mi300 {
			t := count(op, gm.IndepThrottleStatus)
			t.mask = mask
			if f == otherFamily && mask&throttleThermal != 0 {
				t.confirm, t.raw = confirmations()
			}
			terms = append(terms, t)
		}
		if len(counts) > 0 {
			t := count(op, counts...)
			t.mask = mask
			terms = append(terms, t)
		}
		if len(terms) > 0 {
			out = append(out, spec{id, labels, terms})
		}
	}
	active := func(reason string, mask uint64, counts ...gm.Field) {
		add(field.AMDThrottleActive, label("reason", reason), opMask, mask, counts...)
	}
	add(field.ClockEventReasons, nil, opReasons, throttleKnown,
		gm.ProchotResidency, gm.PPTResidency, gm.SocketThmResidency, gm.VRThmResidency, gm.HBMThmResidency)
	active("power", throttlePower, gm.PPTResidency)
	active("current", throttleCurrent)
	active("thermal", throttleThermal, gm.SocketThmResidency, gm.VRThmResidency, gm.HBMThmResidency)
	active("prochot", throttleProchot, gm.ProchotResidency)
	out = append(out,
		one(field.PowerViolation, count(opHeld, cycles, gm.PPTResidency)),
		one(field.ThermalViolation, count(opHeld, cycles, gm.SocketThmResidency, gm.VRThmResidency, gm.HBMThmResidency)),
		one(field.AMDAccumulationCycles, counter(cycles, 1, maxCycleRate)))
	for _, r := range residencies {
		out = append(out,
			spec{field.AMDThrottleResidency, label("reason", r.reason), []term{counter(r.field, 1, maxCycleRate)}},
			spec{field.AMDThrottleShare, label("reason", r.reason), []term{part(r.field, 0)}})
	}
	return out
}

// part returns the term of element i of a counter as a share of all cycles.
func part(f gm.Field, i int) term {
	t := over(opPart, 1, 0, 1, gm.AccumulationCounter, f)
	t.at = i
	return t
}

// confirmations returns the bits that count only if their temperature is near its limit. Up to MI200 and Navi 1x the
// firmware reports the reasons for throttling. Firmware of Navi 2x and later reports the distance to each limit, and the
// driver sets a bit if the distance is not 0 (…_get_throttler_status in sienna_cichlid_ppt.c, smu_v13_0_0_ppt.c and
// smu_v14_0_2_ppt.c). On Navi 31 to 48 the hotspot's distance is never 0, even if it is cold. Firmware of APUs reports
// flags; their revisions have no hotspot sensor.
func confirmations() (list []confirmation, limits []sysfs.Reading) {
	for i, c := range []confirmation{
		sysfs.SensorEdge: {throttleEdge, gm.TemperatureEdge}, sysfs.SensorJunction: {throttleHotspot, gm.TemperatureHotspot},
		sysfs.SensorMemory: {throttleMemory, gm.TemperatureMem},
	} {
		list = append(list, c)
		limits = append(limits, sysfs.Reading{Kind: sysfs.TemperatureCrit, Index: uint8(i)})
	}
	return list, limits
}

// xgmiRate returns the growth of counters of XGMI links. An MI300's link carries 64 GB/s.
func xgmiRate(scale float64, first, links int, f ...gm.Field) term {
	return over(opRate, scale, first, links, f...).within(toBytes, links*len(f), gm.XGMILinkWidth, 64e9)
}

// fabricSpecs returns the columns of XGMI. Writes count as sent. The element behind the links is SMU 15's sum over all.
func fabricSpecs() []spec {
	rate := func(scale float64, f ...gm.Field) term { return xgmiRate(scale, 0, gm.XGMILinks+1, f...) }
	total := func(f gm.Field, element, links int) term {
		return over(opLinked, toBytes, element, 1, f).within(toBytes, links, gm.XGMILinkWidth, 64e9)
	}
	out := []spec{
		one(dcgmLinksTotal, rate(toMB, gm.XGMIReadAcc, gm.XGMIWriteAcc)),
		one(dcgmLinksTx, rate(toMB, gm.XGMIWriteAcc)),
		one(dcgmLinksRx, rate(toMB, gm.XGMIReadAcc)),
		one(dcgmLinksTxBytes, rate(toBytes, gm.XGMIWriteAcc)),
		one(dcgmLinksRxBytes, rate(toBytes, gm.XGMIReadAcc)),
		{field.AMDXGMIBytes, label("direction", "read"), []term{total(gm.XGMIReadAcc, gm.XGMILinks, gm.XGMILinks)}},
		{field.AMDXGMIBytes, label("direction", "write"), []term{total(gm.XGMIWriteAcc, gm.XGMILinks, gm.XGMILinks)}},
		one(field.AMDXGMILinkWidth, metric(gm.XGMILinkWidth, 0, 1)),
		one(field.AMDXGMILinkSpeed, metric(gm.XGMILinkSpeed, 0, fromGB)),
	}
	for i := range gm.XGMILinks {
		link := collector.Label{Name: "link", Value: strconv.Itoa(i)}
		out = append(out,
			spec{field.AMDXGMIBytes, []collector.Label{{Name: "direction", Value: "read"}, link}, []term{total(gm.XGMIReadAcc, i, 1)}},
			spec{field.AMDXGMIBytes, []collector.Label{{Name: "direction", Value: "write"}, link}, []term{total(gm.XGMIWriteAcc, i, 1)}},
			spec{field.AMDXGMILinkUp, []collector.Label{link}, []term{metric(gm.XGMILinkStatus, i, 1)}})
	}
	return out
}

// linkSpecs returns the columns of XGMI link i as a separate device.
func linkSpecs(i int) []spec {
	rate := func(f ...gm.Field) term { return xgmiRate(toMB, i, 1, f...) }
	return []spec{
		one(dcgmLink, rate(gm.XGMIReadAcc, gm.XGMIWriteAcc)),
		one(dcgmLinkTx, rate(gm.XGMIWriteAcc)),
		one(dcgmLinkRx, rate(gm.XGMIReadAcc)),
	}
}

func hardwareSpecs(g *sysfs.GPU) []spec {
	out := []spec{
		one(dcgmFan, rawTerm(sysfs.FanDuty, 0, toPercent)),
		one(field.AMDFan, rawTerm(sysfs.FanRPM, 0, 1), metric(gm.FanSpeed, 0, 1)),
		{field.AMDVoltage, label("rail", "gfx"), []term{rawTerm(sysfs.Voltage, 0, 1), metric(gm.VoltageGfx, 0, toVolt)}},
		{field.AMDVoltage, label("rail", "soc"), []term{metric(gm.VoltageSoc, 0, toVolt)}},
		{field.AMDVoltage, label("rail", "mem"), []term{metric(gm.VoltageMem, 0, toVolt)}},
	}
	if !g.Partitioned() { // otherwise the instances have these columns
		out = append(out, engineSpecs(0)...)
	}
	return out
}

// engineSpecs returns the columns of a partition's engines. Revisions before 1.6 have none.
func engineSpecs(partition int) []spec {
	var out []spec
	engine := func(id field.ID, name string, i int, f gm.Field, perPartition int, whole gm.Field) {
		terms := []term{metric(f, partition*perPartition+i, fromPercent)}
		if partition == 0 && i < whole.Len() {
			terms = append(terms, metric(whole, i, fromPercent))
		}
		out = append(out, spec{id, label(name, strconv.Itoa(i)), terms})
	}
	for i := range gm.VCNs {
		engine(field.AMDVCNBusy, "instance", i, gm.XCPVCNBusy, gm.VCNs, gm.VCNActivity)
	}
	for i := range gm.JPEGsOfXCP {
		engine(field.AMDJPEGBusy, "instance", i, gm.XCPJPEGBusy, gm.JPEGsOfXCP, gm.JPEGActivity)
	}
	for i := range gm.XCCs {
		at := partition*gm.XCCs + i
		xcc := collector.Label{Name: "xcc", Value: strconv.Itoa(i)}
		out = append(out,
			spec{field.AMDXCCBusy, []collector.Label{xcc}, []term{metric(gm.XCPGfxBusy, at, fromPercent)}},
			spec{field.AMDXCCBusySeconds, []collector.Label{xcc}, []term{metric(gm.XCPGfxBusyAcc, at, toBusy)}})
		for _, r := range []struct {
			name string
			f    gm.Field
		}{
			{"power", gm.XCPBelowLimitPPT}, {"thermal", gm.XCPBelowLimitThm}, {"low_utilization", gm.XCPLowUtilization},
			{"any", gm.XCPBelowLimitTotal}, {"host_limit", gm.XCPBelowHostLimit},
		} {
			labels := []collector.Label{{Name: "reason", Value: r.name}, xcc}
			out = append(out, spec{field.AMDBelowLimit, labels, []term{metric(r.f, at, 1)}},
				spec{field.AMDBelowLimitShare, labels, []term{part(r.f, at)}})
		}
	}
	return out
}

// processSpecs returns the columns about processes on an instance, or on the whole GPU (-1).
func processSpecs(instance, units int) []spec {
	out := []spec{
		one(field.AMDProcesses, process(instance, 0, 1)),
		one(field.AMDProcessMemory, process(instance, 1, 1)),
	}
	if units > 0 {
		out = append(out, fixed(field.AMDComputeUnits, float64(units)),
			one(field.AMDOccupancy, process(instance, 2, 1/float64(units))))
	}
	return out
}

// process returns the term of a quantity of sysfs.ProcessList.Usage × scale.
func process(instance, quantity int, scale float64) term {
	return term{op: opProcess, first: instance, at: quantity, scale: scale}
}

// instanceSpecs returns the columns of a partition at a position among the GPU's: the values that the driver and KFD report
// per partition. Only boards have other columns.
func instanceSpecs(i sysfs.Instance, at int) []spec {
	total, left := float64(i.Memory), process(at, 1, -toMiB)
	left.plus = total * toMiB
	out := []spec{
		one(dcgmFBUsed, process(at, 1, toMiB)),
		one(field.EngineActive, over(opMeanRate, toBusy, i.ID*gm.XCCs, gm.XCCs, gm.XCPGfxBusyAcc)),
	}
	if total > 0 {
		out = append(out, fixed(dcgmFBTotal, total*toMiB), one(dcgmFBFree, left), one(dcgmFBUsedRatio, process(at, 1, 1/total)))
	}
	out = append(out, engineSpecs(i.ID)...)
	return append(out, processSpecs(at, i.Units)...)
}
