package accumulate

import (
	"math"
	"math/bits"
	"time"

	"warpgauge/pkg/field"
)

// clocks counts the clock events of one device. An event is a run of samples with the reason's bit set: it begins with
// the first, and ends when a sample has it clear. A blank neither begins nor ends one.
type clocks struct {
	width   int64 // of a slot of the window
	created int64 // time of the first sample, ns
	known   bool  // a sample was read
	active  uint64
	reasons [field.ClockReasons]clockReason
}

type clockReason struct {
	total    float64 // onsets
	inWindow float64 // events that were active within the window
	ended    window
}

func newClocks(span time.Duration) *clocks {
	c := &clocks{width: slotWidth(span)}
	for i := range c.reasons {
		c.reasons[i].total, c.reasons[i].inWindow = math.NaN(), math.NaN()
	}
	return c
}

// observe counts the events that begin or end with mask at position at.
func (c *clocks) observe(mask uint64, at, now int64) {
	if !c.known {
		c.known = true
		for i := range c.reasons {
			c.reasons[i].total = 0
		}
	}
	for changed := mask ^ c.active; changed != 0; changed &= changed - 1 {
		r := &c.reasons[bits.TrailingZeros64(changed)]
		if lowest := changed & -changed; mask&lowest != 0 {
			r.total++
		} else {
			r.ended.add(at, now, c.width, 1)
		}
	}
	c.active = mask
}

func (c *clocks) refresh(now int64) {
	if !c.known {
		return
	}
	for i := range c.reasons {
		r := &c.reasons[i]
		r.inWindow = float64(r.ended.count(now, c.width) + c.active>>i&1)
	}
}
