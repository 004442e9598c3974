package fake

import "time"

// full is a load of 100 % in the curves' unit, thousandths.
const full = 1000

// slot is a stretch of a curve with constant load. The sums are over all slots
// before it, in thousandths × microseconds, which is nanoseconds of full load:
// integers, so that what is counted from them is exact and never goes back.
type slot struct {
	load    int64   // thousandths of what the device can do
	power   int64   // thousandths of the way from idle power to the limit
	loadSum int64   //
	powSum  int64   //
	capSum  int64   // time at the power limit, in thousandths × µs as well
	warmth  float64 // 0…1 at the slot's start: what temperatures follow
}

// curve is a load over time that repeats for ever. Curves are immutable and
// shared by all devices that have the shape, at their own offsets.
type curve struct {
	step  int64  // µs per slot
	slots []slot // one cycle
	cycle slot   // the sums of a whole cycle
}

// point is a curve at one time.
type point struct {
	load    float64 // 0…1
	power   float64 // 0…1 of the way from idle power to the limit
	warmth  float64 // 0…1
	capped  bool    // the limit holds the clocks down
	worked  float64 // seconds of full load so far
	drawn   float64 // seconds at the limit's power above idle so far
	limited float64 // seconds held down by the limit so far
}

// capAt is the load above which a board runs into its power limit.
const capAt = 930

// warmUp is the time constant of heat sink and sensor.
const warmUp = 20 * time.Second

// newCurve makes a curve of loads in thousandths, one per step.
func newCurve(step time.Duration, loads []int64) *curve {
	c := &curve{step: step.Microseconds(), slots: make([]slot, len(loads))}
	for i, load := range loads {
		s := &c.slots[i]
		*s = c.cycle
		s.load, s.power = load, powerOf(load)
		c.cycle.loadSum += s.load * c.step
		c.cycle.powSum += s.power * c.step
		if load >= capAt {
			c.cycle.capSum += full * c.step
		}
	}
	c.warm()
	return c
}

// powerOf says what a load draws: all of the range at capAt, and the regulator
// swings a little below the limit beyond that.
func powerOf(load int64) int64 {
	if load < capAt {
		return load * full / capAt
	}
	return full - (load-capAt)*full/(full-capAt)/50
}

// warm lets the warmth follow the power, as a first-order lag, until the cycle
// ends where it began. A lag of the power's mean starts it close to that.
func (c *curve) warm() {
	warmth := float64(c.cycle.powSum) / float64(c.step*int64(len(c.slots))) / full
	k := 1 - expMinus(float64(c.step)/float64(warmUp.Microseconds()))
	for range 2 {
		for i := range c.slots {
			c.slots[i].warmth = warmth
			warmth += (float64(c.slots[i].power)/full - warmth) * k
		}
	}
}

// at evaluates the curve t microseconds after its start, t ≥ 0.
func (c *curve) at(t int64) point {
	n := int64(len(c.slots))
	i := t / c.step
	rest := t - i*c.step
	cycles := i / n
	i -= cycles * n
	s := &c.slots[i]
	next := &c.slots[0]
	if i+1 < n {
		next = &c.slots[i+1]
	}
	p := point{
		load:   float64(s.load) / full,
		power:  float64(s.power) / full,
		warmth: s.warmth + (next.warmth-s.warmth)*float64(rest)/float64(c.step),
		capped: s.load >= capAt,
		worked: float64(cycles*c.cycle.loadSum+s.loadSum+s.load*rest) / 1e9,
		drawn:  float64(cycles*c.cycle.powSum+s.powSum+s.power*rest) / 1e9,
	}
	limited := cycles*c.cycle.capSum + s.capSum
	if p.capped {
		limited += full * rest
	}
	p.limited = float64(limited) / 1e9
	return p
}

// add adds a part of another point: a board's load is that of its instances.
// Instances never drive a board into its limit.
func (p *point) add(q point, share float64) {
	p.load += q.load * share
	p.power += q.power * share
	p.warmth += q.warmth * share
	p.worked += q.worked * share
	p.drawn += q.drawn * share
}
