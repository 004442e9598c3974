package fake

import (
	"math"

	"warpgauge/pkg/field"
)

// op is how a cell is computed from a point. An enumeration with three numbers instead of a closure makes a sample one
// switch per cell over flat memory.
type op uint8

const (
	constant  op = iota // a
	byLoad              // a + b × load
	byPower             // a + b × power
	byWarmth            // a + b × warmth
	clock               // a idle, b running free, c at the power limit, MHz
	pstate              // a idle, b busy
	used                // a + b × warmth, whole, of c
	free                // c − used
	usedRatio           // used ÷ c
	reasons             // DCGM's mask of clock event reasons
	capped              // 1 at the power limit, else 0
	lastXID             // computed by the source
	xidEvent            // computed by the source
	buffered            // computed by the source's buffers

	firstCounter
	worked  // a + b × seconds of full load + c × seconds up
	drawn   // a + b × seconds at the limit + c × seconds up
	limited // a + b × seconds held down by the limit
	count   // c + whole periods of b seconds since a seconds before the start
)

// cell computes the values of one column.
type cell struct {
	op      op
	whole   bool   // an integer: counters are truncated, the rest is rounded
	unit    uint16 // index of the source's point
	a, b, c float64
	window
}

// bits of DCGM_FI_DEV_CLOCKS_EVENT_REASONS.
const (
	reasonGPUIdle  = 1 << 0
	reasonPowerCap = 1 << 2
)

// idleLoad is the load below which a board lowers its clocks.
const idleLoad = 0.005

// clockStep is the grid of SM clocks, MHz.
const clockStep = 15

// eval returns the value at a point, up seconds after the driver was loaded.
func (c *cell) eval(p *point, up float64) float64 {
	v := c.value(p, up)
	switch {
	case !c.whole:
		return v
	case c.op > firstCounter:
		return math.Floor(v)
	default:
		return math.Floor(v + 0.5)
	}
}

func (c *cell) value(p *point, up float64) float64 {
	switch c.op {
	case byLoad:
		return c.a + c.b*p.load
	case byPower:
		return c.a + c.b*p.power
	case byWarmth:
		return c.a + c.b*p.warmth
	case clock:
		return c.clock(p)
	case pstate:
		if p.load < idleLoad {
			return c.a
		}
		return c.b
	case used:
		return math.Floor(c.a + c.b*p.warmth)
	case free:
		return c.c - math.Floor(c.a+c.b*p.warmth)
	case usedRatio:
		return math.Floor(c.a+c.b*p.warmth) / c.c
	case reasons:
		return clockReasons(p)
	case capped:
		return boolean(p.capped)
	case worked:
		return c.a + c.b*p.worked + c.c*up
	case drawn:
		return c.a + c.b*p.drawn + c.c*up
	case limited:
		return c.a + c.b*p.limited
	case count:
		return math.Floor((up+c.a)/c.b) + c.c
	default:
		return c.a
	}
}

// clock swings above the capped clock while the regulator swings below the power limit.
func (c *cell) clock(p *point) float64 {
	switch {
	case p.load < idleLoad:
		return c.a
	case !p.capped:
		return c.b
	}
	const swing, depth = 0.25, 50 // powerOf lets the power sink by 1 ÷ depth
	v := c.c + (c.b-c.c)*swing*(1-p.power)*depth
	return math.Floor(v/clockStep) * clockStep
}

func clockReasons(p *point) float64 {
	switch {
	case p.load < idleLoad:
		return reasonGPUIdle
	case p.capped:
		return reasonPowerCap
	}
	return 0
}

// fixed returns a constant reading.
func fixed(v float64) (cell, bool) { return cell{op: constant, a: v}, true }

// linear returns a + b × the quantity of op.
func linear(op op, a, b float64) (cell, bool) { return cell{op: op, a: a, b: b}, true }

// none returns a field that the device does not have.
func none() (cell, bool) { return cell{}, false }

// finish adapts a cell to its field: integers where the library returns integers, and constants within the plausible
// range.
func finish(c cell, d *field.Descriptor, unit int) cell {
	c.whole = d.Kind == field.Int64
	c.unit = uint16(unit)
	if c.op == constant {
		c.a = min(max(c.a, d.Min), d.Max)
	}
	return c
}

// perByte converts bytes to the unit of a field.
func perByte(unit string) float64 {
	switch unit {
	case "KiB", "KiB/s":
		return 1.0 / (1 << 10)
	case "MiB", "MiB/s":
		return 1.0 / (1 << 20)
	case "KB", "kB", "KB/s", "kB/s":
		return 1e-3
	case "MB", "MB/s":
		return 1e-6
	}
	return 1
}

// perSecond converts seconds to the unit of a field.
func perSecond(unit string) float64 {
	switch unit {
	case "ns":
		return 1e9
	case "us", "µs":
		return 1e6
	case "ms":
		return 1e3
	}
	return 1
}

// perJoule converts joules to the unit of a field.
func perJoule(unit string) float64 {
	switch unit {
	case "mJ":
		return 1e3
	case "uJ", "µJ":
		return 1e6
	}
	return 1
}
