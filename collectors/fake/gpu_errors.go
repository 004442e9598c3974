package fake

import (
	"math"

	"warpgauge/pkg/field"
)

const hour = 3600.0

// every counts something that happens at a steady pace, at times of this
// device's own.
func (g *gpu) every(seconds float64) (cell, bool) {
	return cell{op: count, a: g.offset * seconds, b: seconds}, true
}

// errors of memory. The one faulty board of the node sees a single-bit error
// every two hours, and a row is remapped after some of them; the others none.
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
	case 300, 301: // ECC is on, and will be
		return fixed(1)
	case 310, 318: // of all, of the device memory; since the driver was loaded
		return rare(sbe, 0)
	case 312, 328: // and since the board was made
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

// events: XIDs, and the time that clocks were held down.
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

// naturalXIDs are what an application's mistakes and a row remap leave in the
// log of the faulty board.
var naturalXIDs = [...]float64{13, 31, 43, 45, 63, 94}

// xidEvery is the time between two of them.
const xidEvery = 17 * 60.0

// xids of a board: which one was the last at a time, NaN if none yet.
type xids struct {
	seed   uint64
	offset float64 // s
	on     bool
}

// number is how many XIDs there were, up seconds after the driver was loaded.
func (x *xids) number(up float64) int64 {
	if !x.on {
		return 0
	}
	return int64((up + x.offset) / xidEvery)
}

func (x *xids) code(number int64) float64 {
	if number == 0 {
		return math.NaN()
	}
	return naturalXIDs[hash(x.seed, forXID, uint64(number))%uint64(len(naturalXIDs))]
}

// since is when XID number happened, in seconds after the driver was loaded.
func (x *xids) since(number int64) float64 { return float64(number)*xidEvery - x.offset }
