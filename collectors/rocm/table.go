package rocm

import (
	"slices"
	"strconv"
	"strings"

	gm "warpgauge/collectors/rocm/internal/gpumetrics"
	"warpgauge/collectors/rocm/internal/raw"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Conversions.
const (
	toMiB        = 1.0 / (1 << 20)
	toPercent    = 100.0
	fromPercent  = 0.01
	toHertz      = 1e6              // from MHz
	toMillijoule = 1000.0 / 65536   // from 2⁻¹⁶ J; the libraries round it to 15.3 µJ, which is 0.3 % too much
	toBusy       = 1e-5             // a rate of percent × ms per second, as a ratio; a sum of it, in seconds
	toVolt       = 1e-3             // from mV
	toBytes      = 1024.0           // from what the driver calls KB
	toMB         = 1024.0 / 1024000 // the same in DCGM's MB, which are 1000 × 1024 bytes
	toKB         = 1e-3             // from bytes
	fromGB       = 1e9
)

// residencyFields are in the order of moved and of the reasons' names.
var residencyFields = []gm.Field{gm.ProchotResidency, gm.PPTResidency, gm.SocketThmResidency, gm.VRThmResidency, gm.HBMThmResidency} //nolint:gochecknoglobals // a constant

// boardSpecs are the columns that a GPU can have.
func boardSpecs(g *raw.GPU, n node) []spec {
	return slices.Concat(
		identitySpecs(g, n), clockSpecs(), temperatureSpecs(), powerSpecs(), utilisationSpecs(), memorySpecs(),
		busSpecs(), errorSpecs(), throttleSpecs(), fabricSpecs(), hardwareSpecs(g), processSpecs(raw.Whole, units(g)),
	)
}

// node is what a GPU knows of the others.
type node struct {
	index, count int
}

func units(g *raw.GPU) int {
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

func identitySpecs(g *raw.GPU, n node) []spec {
	out := []spec{fixed(dcgmCount, float64(n.count)), fixed(dcgmIndex, float64(n.index))}
	if minor, err := strconv.Atoi(strings.TrimPrefix(g.Card, "card")); err == nil {
		out = append(out, fixed(dcgmMinor, float64(minor)))
	}
	if g.Compute != "" {
		out = append(out, fixed(field.AMDPartition, 1,
			collector.Label{Name: "compute", Value: g.Compute}, collector.Label{Name: "memory", Value: g.Memory}))
	}
	return out
}

func clockSpecs() []spec {
	sources := []struct {
		name   string
		clock  uint8
		metric term // stands in where the driver has no file
	}{
		{"gfx", raw.ClockGraphics, over(opMax, 1, 0, gm.GfxClocks, gm.CurrentGfxclk)},
		{"mem", raw.ClockMemory, metric(gm.CurrentUclk, 0, 1)},
		{"fabric", raw.ClockFabric, metric(gm.CurrentFclk, 0, 1)},
		{"soc", raw.ClockSystem, over(opMax, 1, 0, gm.Clocks, gm.CurrentSocclk)},
		{"video", raw.ClockVideo, over(opMax, 1, 0, gm.Clocks, gm.CurrentVclk0)},
		{"decode", raw.ClockDecode, over(opMax, 1, 0, gm.Clocks, gm.CurrentDclk0)},
	}
	var out []spec
	for i, s := range sources {
		terms := func(scale float64) []term {
			m := s.metric
			m.scale *= scale
			return []term{read(raw.Clock, s.clock, scale), m}
		}
		if dcgm := []field.ID{dcgmSMClock, dcgmMemClock, 0, 0, dcgmVideoClock, 0}[i]; dcgm != 0 {
			out = append(out, one(dcgm, terms(1)...))
		}
		if dcgm := []field.ID{dcgmMaxSMClock, dcgmMaxMemClock, 0, 0, dcgmMaxVideoClock, 0}[i]; dcgm != 0 {
			out = append(out, one(dcgm, read(raw.ClockMax, s.clock, 1)))
		}
		out = append(out, spec{field.AMDClock, label("clock", s.name), terms(toHertz)})
	}
	for i := range gm.GfxClocks {
		out = append(out, spec{field.AMDXCCClock, label("xcc", strconv.Itoa(i)), []term{metric(gm.CurrentGfxclk, i, toHertz)}})
	}
	return out
}

func temperatureSpecs() []spec {
	// MI300 has no edge sensor: the junction's takes its place there.
	gpu := func(k raw.Kind) []term {
		return []term{read(k, raw.SensorEdge, 1), read(k, raw.SensorJunction, 1).orElse(1)}
	}
	out := []spec{
		one(dcgmMemoryTemp, read(raw.Temperature, raw.SensorMemory, 1), metric(gm.TemperatureMem, 0, 1)),
		one(dcgmGPUTemp,
			read(raw.Temperature, raw.SensorEdge, 1), metric(gm.TemperatureEdge, 0, 1),
			read(raw.Temperature, raw.SensorJunction, 1).orElse(1), metric(gm.TemperatureHotspot, 0, 1).orElse(1),
			metric(gm.TemperatureGfx, 0, 1).orElse(2)),
		one(dcgmSlowdownTemp, gpu(raw.TemperatureCrit)...),
		one(dcgmShutdownTemp, gpu(raw.TemperatureStop)...),
	}
	sensor := func(name string, terms ...term) {
		out = append(out, spec{field.AMDTemperature, label("sensor", name), terms})
	}
	sensor("edge", read(raw.Temperature, raw.SensorEdge, 1), metric(gm.TemperatureEdge, 0, 1))
	sensor("junction", read(raw.Temperature, raw.SensorJunction, 1), metric(gm.TemperatureHotspot, 0, 1))
	sensor("mem", read(raw.Temperature, raw.SensorMemory, 1), metric(gm.TemperatureMem, 0, 1))
	sensor("vrgfx", metric(gm.TemperatureVRGfx, 0, 1))
	sensor("vrsoc", metric(gm.TemperatureVRSoc, 0, 1))
	sensor("vrmem", metric(gm.TemperatureVRMem, 0, 1))
	sensor("soc", metric(gm.TemperatureSoc, 0, 1))
	for i := range gm.HBMStacks {
		sensor("hbm"+strconv.Itoa(i), metric(gm.TemperatureHBM, i, 1))
	}
	return out
}

// powerSpecs: a power or energy of 0 is how the driver says that the other die
// of the package tells it (MI250): a board that is on draws some.
func powerSpecs() []spec {
	average := []term{read(raw.PowerAverage, 0, 1).told(), metric(gm.AverageSocketPower, 0, 1).told()}
	instant := []term{read(raw.PowerInput, 0, 1).told(), metric(gm.CurrentSocketPower, 0, 1).told()}
	either := slices.Clone(average)
	for _, t := range instant {
		either = append(either, t.orElse(1))
	}
	return []spec{
		one(dcgmPower, either...),
		one(dcgmPowerInstant, instant...),
		one(dcgmEnergy, metric(gm.EnergyAccumulator, 0, toMillijoule).told()),
		one(dcgmPowerLimit, read(raw.PowerCap, 0, 1).told()),
		one(dcgmPowerEnforced, read(raw.PowerCap, 0, 1).told()),
		one(dcgmPowerLimitMin, read(raw.PowerCapMin, 0, 1)),
		one(dcgmPowerLimitMax, read(raw.PowerCapMax, 0, 1).told()),
		one(dcgmPowerLimitDef, read(raw.PowerCapDefault, 0, 1).told()),
	}
}

// utilisationSpecs: DCGM_FI_DEV_GPU_UTIL and MEM_COPY_UTIL are the driver's
// present percentages, the numbers that AMD's tools show.
// DCGM_FI_PROF_GR_ENGINE_ACTIVE and DRAM_ACTIVE are the exact means since the
// last sample, from what the firmware adds up every millisecond, so that no
// burst is lost at any interval.
func utilisationSpecs() []spec {
	video := []term{
		over(opMax, 1, 0, gm.Partitions*gm.VCNs, gm.XCPVCNBusy),
		over(opMax, 1, 0, gm.VCNs, gm.VCNActivity),
		metric(gm.AverageMMActivity, 0, 1),
	}
	return []spec{
		one(dcgmGPUUtil, read(raw.Busy, 0, 1), metric(gm.AverageGfxActivity, 0, 1)),
		one(dcgmMemUtil, read(raw.MemoryBusy, 0, 1), metric(gm.AverageUmcActivity, 0, 1)),
		one(dcgmEncUtil, video...),
		one(dcgmDecUtil, video...),
		one(dcgmEngineActive, over(opRate, toBusy, 0, 1, gm.GfxActivityAcc)),
		one(dcgmDRAMActive, over(opRate, toBusy, 0, 1, gm.MemActivityAcc)),
		{field.AMDBusySeconds, label("engine", "gfx"), []term{metric(gm.GfxActivityAcc, 0, toBusy)}},
		{field.AMDBusySeconds, label("engine", "umc"), []term{metric(gm.MemActivityAcc, 0, toBusy)}},
	}
}

func memorySpecs() []spec {
	total := raw.Reading{Kind: raw.MemoryTotal, Index: raw.MemoryVRAM}
	used := raw.Reading{Kind: raw.MemoryUsed, Index: raw.MemoryVRAM}
	out := []spec{
		one(dcgmFBTotal, read(raw.MemoryTotal, raw.MemoryVRAM, toMiB).told()),
		one(dcgmFBUsed, read(raw.MemoryUsed, raw.MemoryVRAM, toMiB)),
		one(dcgmFBFree, pair(opFree, total, used, toMiB)),
		one(dcgmFBUsedRatio, pair(opShare, used, total, 1)),
	}
	for i, name := range []string{raw.MemoryVRAM: "vram", raw.MemoryVisible: "visible", raw.MemoryGTT: "gtt"} {
		out = append(out,
			spec{field.AMDMemoryUsed, label("memory", name), []term{read(raw.MemoryUsed, uint8(i), 1)}},
			spec{field.AMDMemorySize, label("memory", name), []term{read(raw.MemoryTotal, uint8(i), 1).told()}})
	}
	return out
}

func busSpecs() []spec {
	bus := func(direction int, scale float64) term { return term{op: opBus, first: direction, scale: scale} }
	return []spec{
		one(dcgmReplays, read(raw.Replays, 0, 1), metric(gm.PCIeReplay, 0, 1)),
		one(dcgmLinkGen, read(raw.LinkSpeed, 0, 1).generation(), metric(gm.PCIeLinkSpeed, 0, 1).generation()),
		one(dcgmLinkWidth, read(raw.LinkWidth, 0, 1), metric(gm.PCIeLinkWidth, 0, 1)),
		one(dcgmMaxLinkGen, read(raw.LinkSpeedMax, 0, 1).generation()),
		one(dcgmMaxLinkWidth, read(raw.LinkWidthMax, 0, 1)),
		one(dcgmPCIeTx, bus(0, 1)),
		one(dcgmPCIeRx, bus(1, 1)),
		one(dcgmPCIeTxKB, bus(0, toKB)),
		one(dcgmPCIeRxKB, bus(1, toKB)),
		one(field.AMDPCIeThroughput, metric(gm.PCIeBandwidthInst, 0, fromGB)),
		one(field.AMDPCIeRecoveries, metric(gm.PCIeL0ToRecovery, 0, 1)),
		one(field.AMDPCIeRollovers, metric(gm.PCIeReplayRover, 0, 1)),
		{field.AMDPCIeNAKs, label("direction", "received"), []term{metric(gm.PCIeNAKReceived, 0, 1)}},
		{field.AMDPCIeNAKs, label("direction", "sent"), []term{metric(gm.PCIeNAKSent, 0, 1)}},
	}
}

func errorSpecs() []spec {
	sum := func(kinds ...raw.Kind) term {
		t := term{op: opSum, scale: 1}
		for _, k := range kinds {
			for b := range raw.Blocks {
				t.raw = append(t.raw, raw.Reading{Kind: k, Index: b})
			}
		}
		return t
	}
	out := []spec{
		one(dcgmSBE, sum(raw.Correctable)),
		one(dcgmDBE, sum(raw.Uncorrectable)),
		one(dcgmRetired, read(raw.BadPages, raw.PageRetired, 1)),
		one(dcgmRetiredPending, read(raw.BadPages, raw.PagePending, 1)),
		one(dcgmRemapFailure, term{op: opAny, raw: []raw.Reading{{Kind: raw.BadPages, Index: raw.PageFailed}}, scale: 1}),
	}
	for b := range raw.Blocks {
		for i, severity := range []string{"ce", "de", "ue"} {
			kind := []raw.Kind{raw.Correctable, raw.Deferred, raw.Uncorrectable}[i]
			out = append(out, spec{field.AMDRASErrors,
				[]collector.Label{{Name: "block", Value: raw.BlockName(b)}, {Name: "severity", Value: severity}},
				[]term{read(kind, b, 1)}})
		}
	}
	for i, state := range []string{raw.PageRetired: "retired", raw.PagePending: "pending", raw.PageFailed: "failed"} {
		out = append(out, spec{field.AMDBadPages, label("state", state), []term{read(raw.BadPages, uint8(i), 1)}})
	}
	return out
}
