package fake

import (
	"fmt"
	"strconv"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Fields that only AMD GPUs have, with the labels of the collector rocm for a whole MI300X.

const (
	amdXCCs, amdVCNs, amdJPEGs = 8, 4, 32
	amdUnits                   = 304
	amdCycles                  = 1000 // of the firmware, per second
)

// amdColumn is a column before it is added to a source.
type amdColumn struct {
	labels []collector.Label
	cell   cell
}

func labelOf(name, value string) []collector.Label {
	return []collector.Label{{Name: name, Value: value}}
}

// amd adds the columns of a field that only AMD's boards have.
func (b *builder) amd(s *source, g *gpu) {
	if g.vendor != field.VendorAMD {
		return
	}
	for _, r := range b.readings {
		if r.Desc.Vendor != field.VendorAMD {
			continue
		}
		for _, c := range g.amdColumns(r.Desc) {
			s.addColumn(r.Desc, 0, 0, c.cell, c.labels...)
		}
	}
}

func (g *gpu) amdColumns(d *field.Descriptor) []amdColumn {
	for _, columns := range []func(*field.Descriptor) []amdColumn{g.amdEngines, g.amdSensors, g.amdFabric, g.amdTroubles, g.amdRest} {
		if out := columns(d); out != nil {
			return out
		}
	}
	return nil
}

// numbered returns n columns that differ in the number of a part.
func numbered(name string, n int, c cell) []amdColumn {
	var out []amdColumn
	for i := range n {
		out = append(out, amdColumn{labelOf(name, strconv.Itoa(i)), c})
	}
	return out
}

// named returns a column for each value of a label.
func named(name string, values ...string) func(cells ...cell) []amdColumn {
	return func(cells ...cell) []amdColumn {
		var out []amdColumn
		for i, v := range values {
			out = append(out, amdColumn{labelOf(name, v), cells[min(i, len(cells)-1)]})
		}
		return out
	}
}

func (g *gpu) amdEngines(d *field.Descriptor) []amdColumn {
	busy := cell{op: byLoad, b: 1}
	video := cell{op: byLoad, b: g.mix.decoder}
	running := cell{op: clock, a: 1e6 * g.idleMHz, b: 1e6 * g.maxMHz, c: 1e6 * g.cappedMHz}
	mhz := func(all ...float64) []amdColumn {
		var cells []cell
		for _, v := range all {
			cells = append(cells, cell{op: constant, a: v * 1e6})
		}
		return named("clock", "gfx", "mem", "fabric", "soc", "video", "decode")(cells...)
	}
	switch d.ID {
	case field.AMDClockMin:
		return mhz(g.idleMHz, g.idleMemoryMHz, 400, 666, g.idleMHz, g.idleMHz)
	case field.AMDClockMax:
		return mhz(g.maxMHz, g.memoryMHz, 1400, 1090, g.videoMHz, g.videoMHz)
	case field.AMDEngineClock:
		var out []amdColumn
		for _, name := range []string{"video", "decode"} {
			for _, c := range numbered("instance", amdVCNs, cell{op: pstate, a: 1e6 * g.idleMHz, b: 1e6 * g.videoMHz}) {
				c.labels = append(labelOf("clock", name), c.labels...)
				out = append(out, c)
			}
		}
		return out
	case field.AMDBusySeconds:
		return named("engine", "gfx", "umc")(cell{op: worked, b: 1}, cell{op: worked, b: g.mix.dram})
	case field.AMDVCNBusy:
		return numbered("instance", amdVCNs, video)
	case field.AMDJPEGBusy:
		return numbered("instance", amdJPEGs, cell{op: constant})
	case field.AMDXCCBusy:
		return numbered("xcc", amdXCCs, busy)
	case field.AMDXCCBusySeconds:
		return numbered("xcc", amdXCCs, cell{op: worked, b: 1})
	case field.AMDXCCClock:
		return numbered("xcc", amdXCCs, running)
	case field.AMDClock:
		memory := cell{op: pstate, a: 1e6 * g.idleMemoryMHz, b: 1e6 * g.memoryMHz}
		video := cell{op: pstate, a: 1e6 * g.idleMHz, b: 1e6 * g.videoMHz}
		return named("clock", "gfx", "mem", "fabric", "soc", "video", "decode")(
			running, memory, cell{op: constant, a: 1.4e9}, cell{op: constant, a: 1.09e9}, video, video)
	}
	return nil
}

func (g *gpu) amdSensors(d *field.Descriptor) []amdColumn {
	switch d.ID {
	case field.AMDTemperature:
		junction, _ := linear(byWarmth, g.idleCelsius, g.hotCelsius-g.idleCelsius)
		memory, _ := linear(byWarmth, g.idleMemCelsius, g.hotMemCelsius-g.idleMemCelsius)
		return named("sensor", "junction", "mem", "vrsoc")(junction, memory, cell{op: byWarmth, a: 36, b: 18})
	case field.AMDVoltage:
		return named("rail", "gfx")(cell{op: byLoad, a: 0.7, b: 0.2})
	case field.AMDMemoryUsed:
		vram := g.amdVRAM()
		return named("memory", "vram", "visible", "gtt")(vram, vram, cell{op: constant, a: 22 << 20})
	case field.AMDMemoryFree:
		vram := g.amdVRAM()
		vram.op = free
		return named("memory", "vram", "visible", "gtt")(vram, vram, cell{op: constant, a: 504<<30 - 22<<20})
	case field.AMDMemorySize:
		size := cell{op: constant, a: g.memory * (1 << 20)}
		return named("memory", "vram", "visible", "gtt")(size, size, cell{op: constant, a: 504 << 30})
	}
	return nil
}

func (g *gpu) amdFabric(d *field.Descriptor) []amdColumn {
	switch d.ID {
	case field.AMDXGMIBytes:
		var out []amdColumn
		for i := range g.board.links {
			for _, direction := range []string{"read", "write"} {
				out = append(out, amdColumn{
					[]collector.Label{{Name: "direction", Value: direction}, {Name: "link", Value: strconv.Itoa(i)}},
					cell{op: worked, b: g.mix.nvlink * g.linkBytes},
				})
			}
		}
		return out
	case field.AMDXGMILinkUp:
		return numbered("link", g.board.links, cell{op: constant, a: 1})
	case field.AMDXGMILinkWidth:
		return one(cell{op: constant, a: 16})
	case field.AMDXGMILinkSpeed:
		return one(cell{op: constant, a: 32e9})
	case field.AMDPCIeThroughput:
		return one(cell{op: byLoad, b: g.pcieBytes() * (g.mix.pcieTx + g.mix.pcieRx)})
	case field.AMDPCIeSpeed, field.AMDPCIeSpeedMax:
		return one(cell{op: constant, a: 32e9})
	case field.AMDMaxBandwidth:
		return one(cell{op: constant, a: 5.3e12})
	case field.AMDPCIeRecoveries, field.AMDPCIeRollovers:
		return one(cell{op: constant})
	case field.AMDPCIeNAKs:
		return named("direction", "received", "sent")(cell{op: constant})
	}
	return nil
}

func one(c cell) []amdColumn { return []amdColumn{{nil, c}} }

func (g *gpu) amdTroubles(d *field.Descriptor) []amdColumn {
	held := cell{op: limited, b: amdCycles}
	never := cell{op: constant}
	switch d.ID {
	case field.AMDThrottleResidency:
		return named("reason", "prochot", "ppt", "socket_thermal", "vr_thermal", "hbm_thermal")(never, held, never)
	case field.AMDThrottleShare:
		return named("reason", "prochot", "ppt", "socket_thermal", "vr_thermal", "hbm_thermal")(never, cell{op: capped}, never)
	case field.AMDAccumulationCycles:
		return one(cell{op: worked, c: amdCycles})
	case field.AMDThrottleActive:
		return named("reason", "power", "thermal", "prochot")(cell{op: capped}, never)
	case field.AMDBelowLimit, field.AMDBelowLimitShare:
		if d.ID == field.AMDBelowLimitShare {
			held = cell{op: capped}
		}
		var out []amdColumn
		for _, c := range numbered("xcc", amdXCCs, held) {
			c.labels = append(labelOf("reason", "host_limit"), c.labels...)
			out = append(out, c)
		}
		return out
	case field.AMDRASErrors:
		return g.amdErrors()
	case field.AMDBadPages:
		return named("state", "retired", "pending", "failed")(never)
	case field.AMDRecordAge: // records are 15 hours old
		return named("severity", "fatal", "non_fatal_corrected")(cell{op: constant, a: 54000})
	case field.AMDUnread:
		return named("what", "gpu_metrics", "attributes", "partitions")(never)
	}
	return nil
}

// amdErrors counts the memory controller's corrected errors as ECC errors.
func (g *gpu) amdErrors() []amdColumn {
	var out []amdColumn
	for _, block := range []string{"umc", "sdma", "gfx", "mmhub", "pcie_bif", "hdp", "xgmi_wafl"} {
		for _, severity := range []string{"ce", "ue"} {
			c := cell{op: constant}
			if d, ok := field.ByID(310); ok && block == "umc" && severity == "ce" {
				c, _ = g.errors(d)
			}
			out = append(out, amdColumn{[]collector.Label{{Name: "block", Value: block}, {Name: "severity", Value: severity}}, c})
		}
	}
	return out
}

func (g *gpu) amdRest(d *field.Descriptor) []amdColumn {
	switch d.ID {
	case field.AMDProcesses:
		return one(cell{op: pstate, b: 1})
	case field.AMDProcessMemory:
		return one(g.amdVRAM())
	case field.AMDComputeUnits:
		return one(cell{op: constant, a: amdUnits})
	case field.AMDOccupancy:
		return one(cell{op: byLoad, b: g.mix.occupancy})
	case field.AMDPartition:
		return []amdColumn{{[]collector.Label{{Name: "compute", Value: "SPX"}, {Name: "memory", Value: "NPS1"}}, cell{op: constant, a: 1}}}
	}
	return nil
}

// amdVRAM returns the device memory in use, in bytes.
func (g *gpu) amdVRAM() cell {
	bytes := g.memory * (1 << 20)
	return cell{op: used, a: bytes * g.mix.memory, b: bytes * g.mix.memorySwing, c: bytes}
}

// amdTexts returns the text fields that only AMD GPUs have.
func (g *gpu) amdTexts(d collector.Device) map[field.ID]string {
	return map[field.ID]string{
		field.AMDUniqueID: d.UUID[len("GPU-"):], field.AMDComputePartition: "SPX", field.AMDMemoryPartition: "NPS1",
		field.AMDCard: d.Node, field.AMDRenderNode: fmt.Sprintf("renderD%d", 128+g.index),
		field.AMDModelNumber: "102-G30211-00", field.AMDVendor: "Advanced Micro Devices, Inc. [AMD/ATI]", field.AMDDeployment: "baremetal",
		field.AMDUUID: fmt.Sprintf("00ff74a1-0000-1000-80fa-%s", d.UUID[len(d.UUID)-12:]),
	}
}
