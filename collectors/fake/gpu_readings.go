package fake

import (
	"strings"

	"warpgauge/pkg/field"
)

// Readings that follow the load: clocks, temperatures, power, utilisation, memory, bus.

func (g *gpu) clocks(d *field.Descriptor) (cell, bool) {
	switch d.ID {
	case 100:
		return cell{op: clock, a: g.idleMHz, b: g.maxMHz, c: g.cappedMHz}, true
	case 101:
		return cell{op: pstate, a: g.idleMemoryMHz, b: g.memoryMHz}, true
	case 102:
		return cell{op: pstate, a: g.idleMHz, b: g.videoMHz}, true
	case 110, 113:
		return fixed(g.maxMHz)
	case 111, 114:
		return fixed(g.memoryMHz)
	case 115:
		return fixed(g.videoMHz)
	case field.ClockEventReasons:
		return cell{op: reasons}, true
	case 190: // P8 when idle, on boards for the desk
		return cell{op: pstate, a: 8 * boolean(g.consumer)}, true
	}
	return none()
}

func (g *gpu) temperatures(d *field.Descriptor) (cell, bool) {
	switch d.ID {
	case 140:
		return linear(byWarmth, g.idleMemCelsius, g.hotMemCelsius-g.idleMemCelsius)
	case 150:
		return linear(byWarmth, g.idleCelsius, g.hotCelsius-g.idleCelsius)
	case 151:
		return fixed(g.maxMemOpCelsius)
	case 152:
		return fixed(g.maxOpCelsius)
	case 153: // margin to the highest operating temperature
		return linear(byWarmth, g.maxOpCelsius-g.idleCelsius, g.idleCelsius-g.hotCelsius)
	case 158:
		return fixed(g.slowdownCelsius)
	case 159:
		return fixed(g.shutdownCelsius)
	case fieldFan:
		return linear(byWarmth, 0, 70)
	}
	return none()
}

func (g *gpu) powers(d *field.Descriptor) (cell, bool) {
	switch d.ID {
	case 155, 157:
		return linear(byPower, g.idleWatts, g.limitWatts-g.idleWatts)
	case 156: // the exact integral of 155
		k := perJoule(d.Unit)
		return cell{op: drawn, b: k * (g.limitWatts - g.idleWatts), c: k * g.idleWatts}, true
	case 160, 163, 164:
		return fixed(g.limitWatts)
	case 161:
		return fixed(g.minWatts)
	case 162:
		return fixed(g.maxWatts)
	}
	return none()
}

func (g *gpu) utilisation(d *field.Descriptor) (cell, bool) {
	percent := func(part float64) (cell, bool) { return linear(byLoad, 0, 100*part) }
	switch d.ID {
	case 203:
		return percent(1)
	case 204:
		return percent(g.mix.dram)
	case 206:
		return percent(g.mix.encoder)
	case 207:
		return percent(g.mix.decoder)
	}
	return none()
}

// memories keeps total = used + free + reserved at all times, in whole MiB.
func (g *gpu) memories(d *field.Descriptor) (cell, bool) {
	available := g.memory - g.reserved
	of := func(op op) (cell, bool) {
		return cell{op: op, a: g.mix.memory * available, b: g.mix.memorySwing * available, c: available}, true
	}
	switch d.ID {
	case 250:
		return fixed(g.memory)
	case 251:
		return of(free)
	case 252:
		return of(used)
	case 253:
		return fixed(g.reserved)
	case 254:
		return of(usedRatio)
	case 90:
		return fixed(g.bar1MiB)
	case 92:
		return fixed(4)
	case 93:
		return fixed(g.bar1MiB - 4)
	}
	return none()
}

// pcieBytes returns the PCIe bandwidth in bytes/s per direction.
func (g *gpu) pcieBytes() float64 {
	lane := 1e9
	for range int(g.pcieGen) - 3 {
		lane *= 2
	}
	return lane * g.pcieWidth
}

func (g *gpu) bus(d *field.Descriptor) (cell, bool) {
	k := perByte(d.Unit) * g.pcieBytes()
	switch d.ID {
	case 200, 1009:
		return linear(byLoad, 0, k*g.mix.pcieTx)
	case 201, 1010:
		return linear(byLoad, 0, k*g.mix.pcieRx)
	case 1091:
		return linear(worked, 0, k*g.mix.pcieTx)
	case 1092:
		return linear(worked, 0, k*g.mix.pcieRx)
	case 202: // a replay every 5 to 50 hours
		return g.every((5 + 45*g.offset) * hour)
	case 235, 237:
		return fixed(g.pcieGen)
	case 236, 238:
		return fixed(g.pcieWidth)
	}
	return none()
}

// profiling returns profiling metrics: ratios of cycles and cycle counters.
func (g *gpu) profiling(d *field.Descriptor) (cell, bool) {
	switch d.ID {
	case 1084: // cycles elapsed
		return cell{op: worked, c: g.maxMHz * 1e6}, true
	case 1085, 1086, 1087, 1088, 1089, 1090, 1093, 1094, 1095, 1096:
		part := map[field.ID]field.ID{1085: 1002, 1086: 1004, 1087: 1015, 1088: 1014, 1089: 1013, 1090: 1006, 1093: 1016, 1094: 1006, 1095: 1007, 1096: 1008}[d.ID]
		ratio, _ := g.activity(part)
		return linear(worked, 0, ratio*g.maxMHz*1e6)
	}
	if ratio, ok := g.activity(d.ID); ok {
		return linear(byLoad, 0, ratio)
	}
	return none()
}

// activity returns a profiling metric's ratio at full load.
func (g *gpu) activity(id field.ID) (float64, bool) {
	m := g.mix
	switch {
	case id == 1001:
		return 1, true
	case id == 1002:
		return m.smActive, true
	case id == 1003:
		return m.occupancy, true
	case id == 1004:
		return m.tensor, true
	case id == 1005:
		return m.dram, true
	case id == 1006:
		return m.fp64, true
	case id == 1007:
		return m.fp32, true
	case id == 1008:
		return m.fp16, true
	case id == 1013: // integer, half and double precision of the tensor pipe
		return 0.1 * m.tensor, true
	case id == 1014:
		return 0.9 * m.tensor, true
	case id == 1015:
		return 0.01 * m.tensor, true
	case id == 1016:
		return 0.5 * m.fp32, true
	case id >= 1017 && id <= 1024: // NVDEC 0…7
		return m.decoder / float64(id-1016), true
	case id >= 1025 && id <= 1034: // NVJPG, NVOFA
		return 0, true
	}
	return 0, false
}

const hour = 3600.0

// every counts events at a steady rate, at times that differ between devices.
func (g *gpu) every(seconds float64) (cell, bool) {
	return cell{op: count, a: g.offset * seconds, b: seconds}, true
}

// errors returns memory errors. The one faulty board of the node has a single-bit error every two hours, and some of
// them remap a row; the other boards have none.
func (g *gpu) errors(d *field.Descriptor) (cell, bool) {
	const sbe, remap, remapUncorrectable, earlier = 2 * hour, 36 * hour, 9 * 24 * hour, 37
	rare := func(seconds, before float64) (cell, bool) {
		if !g.faulty {
			return fixed(0)
		}
		c, _ := g.every(seconds)
		c.c = before
		return c, true
	}
	switch d.ID {
	case 300, 301: // ECC is on and stays on
		return fixed(1)
	case 310, 318: // total, and of device memory; since the driver was loaded
		return rare(sbe, 0)
	case 312, 328: // since the board was made
		return rare(sbe, earlier)
	case 394:
		return rare(remap, 0)
	case 393:
		return rare(remapUncorrectable, 0)
	case 385: // banks with all of their spare rows
		return fixed(640)
	case 386, 387, 388, 389, 390, 391, 392, 395, 396, 346:
		return fixed(0)
	}
	if d.ID >= 310 && d.ID <= 345 {
		return fixed(0)
	}
	return none()
}

// events returns XIDs and the durations of clock limits.
func (g *gpu) events(d *field.Descriptor) (cell, bool) {
	k := perSecond(d.Unit)
	switch d.ID {
	case field.XIDErrors:
		if g.instance {
			return none()
		}
		return cell{op: lastXID}, true
	case field.XIDEvent:
		return cell{op: xidEvent}, true
	case 240, 1420: // by the power limit
		return linear(limited, 0, k)
	case 246, 247: // below the application's clocks, below the base clocks
		return linear(limited, 0, k*boolean(d.ID == 246))
	case 241, 242, 243, 244, 245, 1421, 1422, 1423, 1424:
		return fixed(0)
	case 500, fieldVGPULicense: // neither a vGPU nor licensed as one
		return fixed(0)
	}
	return none()
}

// naturalXIDs are XIDs of application errors and of a row remap, which do not mean that the faulty board is unhealthy.
var naturalXIDs = [...]float64{13, 31, 43, 45, 63, 68}

// xidEvery is the time between two natural XIDs.
const xidEvery = 17 * 60.0

// xids computes a board's natural XIDs.
type xids struct {
	seed   uint64
	offset float64 // s
	on     bool
}

// number returns how many XIDs occurred, up seconds after the driver was loaded.
func (x *xids) number(up float64) int64 {
	if !x.on {
		return 0
	}
	return int64((up + x.offset) / xidEvery)
}

func (x *xids) code(number int64) float64 {
	if number == 0 {
		return 0
	}
	return naturalXIDs[hash(x.seed, forXID, uint64(number))%uint64(len(naturalXIDs))]
}

// since returns when an XID occurred, in seconds after the driver was loaded.
func (x *xids) since(number int64) float64 { return float64(number)*xidEvery - x.offset }

// links returns the fields about all links of a board.
func (g *gpu) links(d *field.Descriptor) (cell, bool) {
	if g.instance || !isNVLink(d.ID) {
		return none()
	}
	if lane, ok := laneOf(d.Name); ok {
		if lane >= g.board.links {
			return none()
		}
		return g.traffic(d, 1, lane == 0)
	}
	return g.traffic(d, g.board.links, true)
}

// traffic returns the traffic of a number of links. The name decides the direction and whether it counts bytes, packets
// or errors. first reports whether the links include the board's first, where a faulty board has its errors.
func (g *gpu) traffic(d *field.Descriptor, links int, first bool) (cell, bool) {
	name := d.Name
	rate := g.mix.nvlink * g.linkBytes * float64(links)
	has := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(name, w) {
				return true
			}
		}
		return false
	}
	switch {
	case has("ERROR", "CRC", "REPLAY", "RECOVERY", "DISCARD", "DROPPED", "MALFORMED", "BER", "FEC", "PLR", "WAIT"):
		return g.linkErrors(name, first)
	case has("PACKET"):
		return linear(worked, 0, rate/256)
	case has("BANDWIDTH", "THROUGHPUT", "BYTES"):
		if !has("TX", "RX") {
			rate *= 2 // both directions
		}
		k := perByte(d.Unit)
		if strings.HasSuffix(d.Unit, "/s") || has("_PROF_") {
			return linear(byLoad, 0, rate*k)
		}
		return linear(worked, 0, rate*k)
	}
	return fixed(0)
}

// linkErrors: the faulty board has a CRC error every three hours, replayed.
func (g *gpu) linkErrors(name string, first bool) (cell, bool) {
	if g.faulty && first && (strings.Contains(name, "CRC_FLIT") || strings.Contains(name, "REPLAY")) {
		return g.every(3 * hour)
	}
	return fixed(0)
}
