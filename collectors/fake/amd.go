package fake

import (
	"fmt"
	"strconv"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Fields that only AMD GPUs have, with the labels that the rocm collector uses for a whole MI300X.

const (
	amdXCCs, amdVCNs, amdJPEGs = 8, 4, 32
	amdCycles                  = 1000 // of the firmware, per second
)

// amdColumn is a column that builder.amd has not yet added to a source.
type amdColumn struct {
	labels []collector.Label
	cell   cell
}

// amd adds the columns of the fields that only AMD boards have.
func (b *builder) amd(s *source, g *gpu) {
	if g.vendor != field.VendorAMD {
		return
	}
	columns := g.amdColumns()
	for _, r := range b.readings {
		for _, c := range columns[r.Desc.ID] {
			s.addColumn(r.Desc, 0, 0, c.cell, c.labels...)
		}
	}
}

// one returns a column without labels.
func one(c cell) []amdColumn { return []amdColumn{{nil, c}} }

// numbered returns n columns with the labels others and part, which counts from 0.
func numbered(part string, n int, c cell, others ...string) (out []amdColumn) {
	for i := range n {
		out = append(out, amdColumn{labels(append(others[:len(others):len(others)], part, strconv.Itoa(i))...), c})
	}
	return out
}

// named returns a column for each value of a label. The last cell is for all further values.
func named(label string, values []string, cells ...cell) (out []amdColumn) {
	for i, v := range values {
		out = append(out, amdColumn{labels(label, v), cells[min(i, len(cells)-1)]})
	}
	return out
}

// hertz returns one constant clock cell per value, in MHz.
func hertz(mhz ...float64) (out []cell) {
	for _, v := range mhz {
		out = append(out, fixed(v*1e6))
	}
	return out
}

func (g *gpu) amdColumns() map[field.ID][]amdColumn {
	m, never, held, capped, worked1 := g.mix, fixed(0), linear(limited, 0, amdCycles), cell{op: capped}, linear(worked, 0, 1)
	bytes := g.memory * (1 << 20)
	vram := cell{op: used, a: bytes * m.memory, b: bytes * m.memorySwing, c: bytes}
	running := cell{op: clock, a: 1e6 * g.idleMHz, b: 1e6 * g.maxMHz, c: 1e6 * g.cappedMHz}
	video := cell{op: pstate, a: 1e6 * g.idleMHz, b: 1e6 * g.videoMHz}
	clocks := []string{"gfx", "mem", "fabric", "soc", "video", "decode"}
	memories := []string{"vram", "visible", "gtt"}
	reasons := []string{"prochot", "ppt", "socket_thermal", "vr_thermal", "hbm_thermal"}
	out := map[field.ID][]amdColumn{
		field.AMDClock:          named("clock", clocks, running, cell{op: pstate, a: 1e6 * g.idleMemoryMHz, b: 1e6 * g.memoryMHz}, fixed(1.4e9), fixed(1.09e9), video),
		field.AMDClockMin:       named("clock", clocks, hertz(g.idleMHz, g.idleMemoryMHz, 400, 666, g.idleMHz)...),
		field.AMDClockMax:       named("clock", clocks, hertz(g.maxMHz, g.memoryMHz, 1400, 1090, g.videoMHz)...),
		field.AMDEngineClock:    append(numbered("instance", amdVCNs, video, "clock", "video"), numbered("instance", amdVCNs, video, "clock", "decode")...),
		field.AMDBusySeconds:    named("engine", []string{"gfx", "umc"}, worked1, linear(worked, 0, m.dram)),
		field.AMDVCNBusy:        numbered("instance", amdVCNs, linear(byLoad, 0, m.decoder)),
		field.AMDJPEGBusy:       numbered("instance", amdJPEGs, never),
		field.AMDXCCBusy:        numbered("xcc", amdXCCs, linear(byLoad, 0, 1)),
		field.AMDXCCBusySeconds: numbered("xcc", amdXCCs, worked1),
		field.AMDXCCClock:       numbered("xcc", amdXCCs, running),
		field.AMDOccupancy:      one(linear(byLoad, 0, m.occupancy)),
		field.AMDComputeUnits:   one(fixed(304)),
		field.AMDPartition:      {{labels("compute", "SPX", "memory", "NPS1"), fixed(1)}},

		field.AMDTemperature: named("sensor", []string{"junction", "mem", "vrsoc"}, linear(byWarmth, g.idleCelsius, g.hotCelsius-g.idleCelsius),
			linear(byWarmth, g.idleMemCelsius, g.hotMemCelsius-g.idleMemCelsius), linear(byWarmth, 36, 18)),
		field.AMDVoltage:       named("rail", []string{"gfx"}, linear(byLoad, 0.7, 0.2)),
		field.AMDMemoryUsed:    named("memory", memories, vram, vram, fixed(22<<20)),
		field.AMDMemoryFree:    named("memory", memories, vram.as(free), vram.as(free), fixed(504<<30-22<<20)),
		field.AMDMemorySize:    named("memory", memories, fixed(bytes), fixed(bytes), fixed(504<<30)),
		field.AMDProcesses:     one(cell{op: pstate, b: 1}),
		field.AMDProcessMemory: one(vram),

		field.AMDXGMILinkUp: numbered("link", g.board.links, fixed(1)), field.AMDXGMILinkWidth: one(fixed(16)), field.AMDXGMILinkSpeed: one(fixed(32e9)),
		field.AMDPCIeThroughput: one(linear(byLoad, 0, g.pcieBytes()*(m.pcieTx+m.pcieRx))),
		field.AMDPCIeSpeed:      one(fixed(32e9)), field.AMDPCIeSpeedMax: one(fixed(32e9)), field.AMDMaxBandwidth: one(fixed(5.3e12)),
		field.AMDPCIeRecoveries: one(never), field.AMDPCIeRollovers: one(never), field.AMDPCIeNAKs: named("direction", []string{"received", "sent"}, never),

		field.AMDThrottleResidency:  named("reason", reasons, never, held, never),
		field.AMDThrottleShare:      named("reason", reasons, never, capped, never),
		field.AMDThrottleActive:     named("reason", []string{"power", "thermal", "prochot"}, capped, never),
		field.AMDAccumulationCycles: one(cell{op: worked, c: amdCycles}),
		field.AMDBelowLimit:         numbered("xcc", amdXCCs, held, "reason", "host_limit"),
		field.AMDBelowLimitShare:    numbered("xcc", amdXCCs, capped, "reason", "host_limit"),
		field.AMDBadPages:           named("state", []string{"retired", "pending", "failed"}, never),
		field.AMDRecordAge:          named("severity", []string{"fatal", "non_fatal_corrected"}, fixed(54000)), // 15 hours
		field.AMDRecordsUndated:     named("severity", []string{"fatal"}, never),
		field.AMDUnread:             named("what", []string{"gpu_metrics", "attributes", "partitions"}, never),
	}
	for i := range g.board.links {
		for _, direction := range []string{"read", "write"} {
			out[field.AMDXGMIBytes] = append(out[field.AMDXGMIBytes],
				amdColumn{labels("direction", direction, "link", strconv.Itoa(i)), linear(worked, 0, m.nvlink*g.linkBytes)})
		}
	}
	for _, block := range []string{"umc", "sdma", "gfx", "mmhub", "pcie_bif", "hdp", "xgmi_wafl"} {
		corrected := never
		if block == "umc" { // the memory controller counts the board's ECC errors
			corrected = g.modelled[310]
		}
		out[field.AMDRASErrors] = append(out[field.AMDRASErrors],
			amdColumn{labels("block", block, "severity", "ce"), corrected}, amdColumn{labels("block", block, "severity", "ue"), never})
	}
	return out
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
