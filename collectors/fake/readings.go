package fake

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// gpu binds fields to a board or to a MIG instance.
type gpu struct {
	*board
	world *World
	index int
	count int // boards of the node
	mix   mix

	// An instance has a share of the board.
	instance  bool
	sliced    bool    // a board that has instances
	computing float64 // share of the SMs
	memory    float64 // MiB
	reserved  float64 // MiB
	idleWatts float64 // differs from board to board
	offset    float64 // shifts this device's counters, 0…1
	faulty    bool    // this board has occasional errors

	modelled map[field.ID]cell // see models
}

const hour = 3600.0

// fieldVGPULicense is the only field of virtual GPUs that DCGM reports for every board.
const fieldVGPULicense field.ID = 526

// models returns the readings above 0, by the IDs of dcgm_fields.h: first the readings that all vendors have, then
// NVIDIA's if g is an NVIDIA board.
func (g *gpu) models() map[field.ID]cell {
	m, watts, available := g.mix, g.limitWatts-g.idleWatts, g.memory-g.reserved
	memory := cell{a: m.memory * available, b: m.memorySwing * available, c: available}
	out := map[field.ID]cell{
		4: fixed(float64(g.count)), 52: fixed(float64(g.index)), 55: fixed(float64(g.index)), // GPUs of the node, index, minor number

		100: {op: clock, a: g.idleMHz, b: g.maxMHz, c: g.cappedMHz}, 101: {op: pstate, a: g.idleMemoryMHz, b: g.memoryMHz}, 102: {op: pstate, a: g.idleMHz, b: g.videoMHz},
		113: fixed(g.maxMHz), 114: fixed(g.memoryMHz), 115: fixed(g.videoMHz), field.ClockEventReasons: {op: reasons},

		140: linear(byWarmth, g.idleMemCelsius, g.hotMemCelsius-g.idleMemCelsius),
		150: linear(byWarmth, g.idleCelsius, g.hotCelsius-g.idleCelsius),
		158: fixed(g.slowdownCelsius), 159: fixed(g.shutdownCelsius),

		155: linear(byPower, g.idleWatts, watts), 157: linear(byPower, g.idleWatts, watts),
		156: cell{op: drawn, b: g.limitWatts - g.idleWatts, c: g.idleWatts}.scaled(), // the exact integral of 155
		160: fixed(g.limitWatts), 161: fixed(g.minWatts), 162: fixed(g.maxWatts), 163: fixed(g.limitWatts), 164: fixed(g.limitWatts),

		203: linear(byLoad, 0, 100), 204: linear(byLoad, 0, 100*m.dram), 206: linear(byLoad, 0, 100*m.encoder), 207: linear(byLoad, 0, 100*m.decoder),

		// total = used + free + reserved at all times, in whole MiB
		250: fixed(g.memory), 251: memory.as(free), 252: memory.as(used), 254: memory.as(usedRatio),

		202: g.every((5 + 45*g.offset) * hour), // replays
		235: fixed(g.pcieGen), 237: fixed(g.pcieGen), 236: fixed(g.pcieWidth), 238: fixed(g.pcieWidth),
		240: linear(limited, 0, 1).scaled(), 241: fixed(0), // time throttled by power, by heat

		310: g.rare(2*hour, 0), 311: fixed(0), 391: fixed(0), 392: fixed(0), 395: fixed(0), // memory errors
		1001: linear(byLoad, 0, 1), 1005: linear(byLoad, 0, m.dram),
	}
	if g.vendor == field.VendorAMD {
		for _, id := range []field.ID{449, 843, 897, 1011, 1012} { // XGMI
			if d, known := field.ByID(id); known {
				out[id] = g.traffic(d, g.board.links, true)
			}
		}
		return out
	}
	maps.Copy(out, map[field.ID]cell{
		5: fixed(cudaVersion), 58: fixed(0x233010de), 59: fixed(0x16c110de), // device and vendor ids
		63: fixed(float64(g.capability[0]<<16 | g.capability[1])), 64: fixed(g.peerMask()),
		66: fixed(1), 84: fixed(1), 94: fixed(1), 1403: fixed(1), // persistence, valid inforom, GPM, C2C powered
		67: fixed(boolean(g.sliced)), 69: fixed(7 * boolean(g.mig)), // MIG
		70: fixed(float64(1 + g.index/4%2)), 86: fixed(float64(1 + g.index/4%2)), // bitmaps of CPUs and memory nodes: the first half serves the first half
		83:  fixed(float64(hash(g.world.seed, forSerial, uint64(g.index)) & 0x7fffffff)),
		170: fixed(3), 175: fixed(1), // fabric manager: success; summary: healthy
		285: fixed(10), 286: fixed(1023), 287: fixed(450e3), // C2C

		110: fixed(g.maxMHz), 111: fixed(g.memoryMHz), 190: {op: pstate, a: 8 * boolean(g.consumer)}, // P8 when idle, on boards for the desk
		151: fixed(g.maxMemOpCelsius), 152: fixed(g.maxOpCelsius), 153: linear(byWarmth, g.maxOpCelsius-g.idleCelsius, g.idleCelsius-g.hotCelsius),
		191: linear(byWarmth, 0, 70), // fan
		90:  fixed(g.bar1MiB), 92: fixed(4), 93: fixed(g.bar1MiB - 4), 253: fixed(g.reserved),

		200: linear(byLoad, 0, g.pcieBytes()*m.pcieTx).scaled(), 1009: linear(byLoad, 0, g.pcieBytes()*m.pcieTx), 1091: linear(worked, 0, g.pcieBytes()*m.pcieTx),
		201: linear(byLoad, 0, g.pcieBytes()*m.pcieRx).scaled(), 1010: linear(byLoad, 0, g.pcieBytes()*m.pcieRx), 1092: linear(worked, 0, g.pcieBytes()*m.pcieRx),

		// ECC is on; corrected errors of device memory, also over the board's life; remapped rows; banks with all spare rows
		300: fixed(1), 301: fixed(1), 318: g.rare(2*hour, 0), 312: g.rare(2*hour, 37), 328: g.rare(2*hour, 37),
		394: g.rare(36*hour, 0), 393: g.rare(9*24*hour, 0), 385: fixed(640),

		246: linear(limited, 0, 1).scaled(), 1420: linear(limited, 0, 1).scaled(), // below the application's clocks, by the power limit
		field.XIDErrors: {op: lastXID}, field.XIDEvent: {op: xidEvent},

		1084: {op: worked, c: g.maxMHz * 1e6}, // cycles elapsed
	})
	cycles := map[field.ID]field.ID{1002: 1085, 1004: 1086, 1006: 1090, 1007: 1095, 1008: 1096, 1013: 1089, 1014: 1088, 1015: 1087, 1016: 1093}
	for id, ratio := range map[field.ID]float64{ // share of cycles at full load
		1002: m.smActive, 1003: m.occupancy, 1004: m.tensor, 1006: m.fp64, 1007: m.fp32, 1008: m.fp16,
		1013: 0.1 * m.tensor, 1014: 0.9 * m.tensor, 1015: 0.01 * m.tensor, 1016: 0.5 * m.fp32,
	} {
		out[id] = linear(byLoad, 0, ratio)
		if total, has := cycles[id]; has {
			out[total] = linear(worked, 0, ratio*g.maxMHz*1e6)
		}
	}
	out[1094] = out[1090] // FP64 and double precision of the tensor pipe
	for id := field.ID(1017); id <= 1034; id++ {
		out[id] = linear(byLoad, 0, 0) // NVJPG, NVOFA
		if id <= 1024 {                // NVDEC 0…7
			out[id] = linear(byLoad, 0, m.decoder/float64(id-1016))
		}
	}
	return out
}

// cell returns how to compute the field for this device, or false if the device lacks it.
func (g *gpu) cell(d *field.Descriptor) (cell, bool) {
	if d.Vendor != nil && d.Vendor != g.vendor || d.ID == field.GPUHealth || d.ID == field.P2PStatus {
		return cell{}, false // builder.gpu adds the last two, which have several columns each
	}
	c, modelled := g.modelled[d.ID]
	switch {
	case g.instance: // the driver reports memory and profiling metrics per instance
		onBoard := d.ID == field.XIDErrors || d.ID == field.XIDEvent || d.ID >= 90 && d.ID <= 93
		return c, modelled && !onBoard && (d.Level == field.Instance || d.Level == field.ComputeInstance)
	case g.vendor == field.VendorAMD: // amd.go adds the fields that only AMD has
		return c, modelled
	case !g.supports(d):
		return cell{}, false
	case modelled:
		return c, true
	case strings.Contains(d.Name, "NVLINK"):
		lane, isLane := laneOf(d.Name)
		if !isLane {
			return g.traffic(d, g.board.links, true), true
		}
		return g.traffic(d, 1, lane == 0), lane < g.board.links
	}
	return fixed(max(d.Min, 0)), true
}

// needs lists ranges of field IDs and the boards that support them. nothing means that no simulated board does.
var needs = []struct {
	first, last field.ID
	has         func(g *gpu) bool
}{
	{6, 6, nothing}, {350, 363, nothing}, {571, 577, nothing}, {1425, 1442, nothing}, {1502, 1503, nothing}, // bind events, diagnostics, racks, power smoothing, IMEX
	{170, 175, func(g *gpu) bool { return g.fabric }},
	{191, 191, func(g *gpu) bool { return g.fan }},
	{140, 140, func(g *gpu) bool { return g.memoryTemp }}, {151, 151, func(g *gpu) bool { return g.memoryTemp }},
	{300, 346, func(g *gpu) bool { return g.ecc }}, {385, 396, func(g *gpu) bool { return g.ecc }}, {1507, 1507, func(g *gpu) bool { return g.ecc }},
	{285, 287, coherent}, {1076, 1083, coherent}, {1400, 1403, coherent},
	{203, 207, func(g *gpu) bool { return !g.sliced }}, // in MIG mode the driver reports no utilisation of the board
	{110, 111, func(g *gpu) bool { return !g.consumer }},
}

func nothing(*gpu) bool    { return false }
func coherent(g *gpu) bool { return g.c2c }

// supports reports whether an NVIDIA board of this model has the field.
func (g *gpu) supports(d *field.Descriptor) bool {
	for _, n := range needs {
		if d.ID >= n.first && d.ID <= n.last {
			return n.has(g)
		}
	}
	_, known := field.ByID(d.ID)
	switch {
	case d.Level != field.Global && d.Level != field.GPU && d.Level != field.Instance && d.Level != field.ComputeInstance:
		return d.ID == fieldVGPULicense
	case strings.Contains(d.Name, "NVLINK"):
		return g.board.links > 0
	case strings.Contains(d.Name, "_PROF_"):
		return g.board.profiling
	}
	return known
}

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// every counts events at a steady rate, at times that differ between devices.
func (g *gpu) every(seconds float64) cell {
	return cell{op: count, a: g.offset * seconds, b: seconds}
}

// rare counts errors that only the node's faulty board has. The counter starts at earlier.
func (g *gpu) rare(seconds, earlier float64) cell {
	if !g.faulty {
		return fixed(0)
	}
	c := g.every(seconds)
	c.c = earlier
	return c
}

// pcieBytes returns the PCIe bandwidth in bytes/s per direction.
func (g *gpu) pcieBytes() float64 {
	return float64(uint64(1)<<(int(g.pcieGen)-3)) * 1e9 * g.pcieWidth
}

// peerMask returns the bitmap of the GPUs that a board reaches over NVLink.
func (g *gpu) peerMask() float64 {
	mask := 0
	for _, j := range peers(g.index, g.count) {
		mask |= 1 << (j % 8)
	}
	return float64(mask)
}

// traffic returns the traffic of a number of links. The field's name decides the direction and whether the reading
// counts bytes, packets or errors. first says that the links include the board's first link, on which the faulty board
// has a CRC error and a replay every three hours.
func (g *gpu) traffic(d *field.Descriptor, links int, first bool) cell {
	rate := g.mix.nvlink * g.linkBytes * float64(links)
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(d.Name, w) })
	}
	switch {
	case first && has("CRC_FLIT", "REPLAY"):
		return g.rare(3*hour, 0)
	case has("ERROR", "CRC", "REPLAY", "RECOVERY", "DISCARD", "DROPPED", "MALFORMED", "BER", "FEC", "PLR", "WAIT"):
		return fixed(0)
	case has("PACKET"):
		return linear(worked, 0, rate/256)
	case has("BANDWIDTH", "THROUGHPUT", "BYTES"):
		if !has("TX", "RX") {
			rate *= 2 // both directions
		}
		if strings.HasSuffix(d.Unit, "/s") || has("_PROF_") {
			return linear(byLoad, 0, rate).scaled()
		}
		return linear(worked, 0, rate).scaled()
	}
	return fixed(0)
}

// texts returns the text fields of a board, by the IDs of dcgm_fields.h.
func (g *gpu) texts(d collector.Device) map[field.ID]string {
	serial := fmt.Sprintf("SIM%010d", hash(g.world.seed, forSerial, uint64(g.index))%1e10)
	out := map[field.ID]string{
		1: nvidiaDriver, 50: d.Model, 51: g.brand, 53: serial, 54: d.UUID, 57: d.PCIBusID, 85: g.vbios,
	}
	if g.vendor == field.VendorAMD {
		out[1] = amdDriver
		maps.Copy(out, g.amdTexts(d))
		return out
	}
	out[2] = nvmlVersion
	out[68] = d.UUID // in the form of CUDA_VISIBLE_DEVICES
	out[82] = g.imageVersion
	if !g.consumer {
		out[56], out[80] = "2.1", "7.16" // the power object has no version on these boards
	}
	if g.instance {
		delete(out, 53)
	}
	if g.fabric {
		out[172] = uuid(g.world.seed, uuidSwitch, 1<<32)
	}
	return out
}
