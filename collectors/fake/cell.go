package fake

import (
	"math"
	"time"

	"warpgauge/pkg/field"
)

// op selects the formula that computes a cell from a point. An enumeration with three numbers is faster than a closure:
// a sample is one switch per cell over flat memory.
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

	firstCounter
	worked  // a + b × seconds of full load + c × seconds up
	drawn   // a + b × seconds at the limit + c × seconds up
	limited // a + b × seconds held down by the limit
	count   // c + whole periods of b seconds since a seconds before the start
)

// cell computes the values of one column.
type cell struct {
	op      op
	si      bool   // a, b and c are in bytes, joules or seconds
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
func fixed(v float64) cell { return cell{op: constant, a: v} }

// linear returns a reading of a + b × the quantity of op.
func linear(op op, a, b float64) cell { return cell{op: op, a: a, b: b} }

// as returns a copy of c with another op.
func (c cell) as(op op) cell {
	c.op = op
	return c
}

// scaled marks c as bytes, joules or seconds, so that finish converts it to the field's unit.
func (c cell) scaled() cell {
	c.si = true
	return c
}

// perUnit has the factors from bytes, joules and seconds to the units of fields.
var perUnit = map[string]float64{
	"KiB": 1.0 / (1 << 10), "KiB/s": 1.0 / (1 << 10), "MiB": 1.0 / (1 << 20), "MiB/s": 1.0 / (1 << 20),
	"KB/s": 1e-3, "MB": 1e-6, "MB/s": 1e-6,
	"ns": 1e9, "us": 1e6, "ms": 1e3, "mJ": 1e3,
}

// finish adapts a cell to its field: its unit, integers where the library returns integers, and constants within the
// plausible range.
func finish(c cell, d *field.Descriptor, unit int) cell {
	if k, is := perUnit[d.Unit]; is && c.si {
		c.a, c.b, c.c = k*c.a, k*c.b, k*c.c
	}
	c.whole = d.Kind == field.Int64
	c.unit = uint16(unit)
	if c.op == constant {
		c.a = min(max(c.a, d.Min), d.Max)
	}
	return c
}

// window describes how a driver averages a reading: the mean over span µs, updated once per period. The zero window
// means no averaging.
type window struct {
	span   int64 // sinceRead: since the last read of this reading
	period int64 // 0: updated continuously
	read   int64 // time of the last read, for sinceRead
}

const (
	sinceRead = -1
	ms        = int64(time.Millisecond / time.Microsecond)

	utilisationPeriod = 1000 * ms / 6 // of NVIDIA's drivers, from pkg/field/window.go
)

// windowOf returns how the board's driver averages a reading.
func (g *gpu) windowOf(id field.ID) window {
	switch {
	case g.vendor == field.VendorAMD && id == 155:
		return window{span: 100 * ms}
	case id >= 1001 && id <= 1083: // profiling
		return window{span: sinceRead}
	case g.vendor == field.VendorAMD:
		return window{}
	case id == 155 && (g.capability[0] > 8 || g.capability[0] == 8 && g.capability[1] > 0): // the driver averages power from Ampere on, except GA100
		return window{span: 1000 * ms}
	case id == 200 || id == 201:
		return window{span: 20 * ms}
	case id >= 203 && id <= 207:
		return window{span: utilisationPeriod, period: utilisationPeriod}
	}
	return window{}
}

// bounds returns the averaging interval of a reading that is read at now.
func (w *window) bounds(now int64) (from, to int64) {
	if w.span == sinceRead {
		if w.read == 0 {
			w.read = now
		}
		from, to = min(w.read, now-100*ms), now
		w.read = now
		return from, to
	}
	if w.period > 0 {
		now -= now % w.period
	}
	return now - w.span, now
}

// averaged returns the point for a cell: the source's point, with load and power averaged over the cell's window. The
// result is valid until the next call.
func (s *source) averaged(c *cell, now int64) *point {
	p := &s.points[c.unit]
	if c.span == 0 {
		return p
	}
	from, to := c.bounds(now)
	s.mean = *p
	s.mean.load, s.mean.power = s.means(int(c.unit), from, to)
	return &s.mean
}

// means returns the mean load and power of a unit.
func (s *source) means(unit int, from, to int64) (load, power float64) {
	if unit == 0 && s.shares != nil {
		for i, share := range s.shares {
			l, p := s.means(i+1, from, to)
			load, power = load+share*l, power+share*p
		}
		return load, power
	}
	l := &s.loads[unit]
	from, to = max(from+l.offset, 0), to+l.offset
	loadBefore, powerBefore := l.curve.sums(from)
	loadAfter, powerAfter := l.curve.sums(to)
	span := float64(to-from) * full
	return float64(loadAfter-loadBefore) / span, float64(powerAfter-powerBefore) / span
}
