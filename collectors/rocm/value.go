package rocm

import (
	"math"

	"warpgauge/collectors/rocm/internal/gpumetrics"
)

// frame is what one Sample has read.
type frame struct {
	values  []float64 // raw readings by slot
	metrics gpumetrics.Metrics
	bus     [2]float64 // pcie_bw, sent and received
	// now is the time of the counters in gpu_metrics. Differences count within
	// one era only: a new one begins where the time base changes or the GPU came
	// back.
	now nanos
	era uint64
}

type nanos uint64

// bound is a term with the slots of its raw readings and its history.
type bound struct {
	*term
	slots []int
	last  []float64 // opSum: last known readings
	sum   history
	part  [5]history // opMoved, opMovedReasons, opHeld
	total float64    // opHeld
}

// history is a counter at the last sample.
type history struct {
	count uint64
	of    int // elements that made it up
	at    nanos
	era   uint64 // 0: none yet
	rate  float64
}

// value computes the term. NaN is blank.
func (b *bound) value(f *frame) float64 {
	v := b.compute(f)
	if b.nonzero && v == 0 {
		return math.NaN()
	}
	if b.speed {
		return pcieGeneration(v)
	}
	return v * b.scale
}

func (b *bound) compute(f *frame) float64 {
	switch b.op {
	case opRaw:
		return f.values[b.slots[0]]
	case opSum:
		return b.known(f)
	case opFree:
		return f.values[b.slots[0]] - f.values[b.slots[1]]
	case opShare:
		return f.values[b.slots[0]] / positive(f.values[b.slots[1]])
	case opAny:
		return oneIf(f.values[b.slots[0]], f.values[b.slots[0]] > 0)
	case opMetric:
		return f.metrics.Float(b.metric[0], b.first)
	case opMax, opMean:
		return b.elements(&f.metrics)
	case opRate, opMeanRate:
		return b.rate(f)
	case opBus:
		return f.bus[b.first]
	case opFixed:
		return 1
	default:
		return b.throttling(f)
	}
}

func positive(v float64) float64 {
	if v > 0 {
		return v
	}
	return math.NaN()
}

// oneIf is 1 or 0, and blank if v is.
func oneIf(v float64, on bool) float64 {
	switch {
	case math.IsNaN(v):
		return v
	case on:
		return 1
	}
	return 0
}

// known adds up the last known readings: a block that cannot be asked just now
// does not make the sum of error counts go back.
func (b *bound) known(f *frame) float64 {
	known, sum := false, 0.0
	for i, slot := range b.slots {
		if v := f.values[slot]; !math.IsNaN(v) {
			b.last[i], known = v, true
		}
		sum += b.last[i]
	}
	if !known {
		return math.NaN()
	}
	return sum
}

// elements is the largest or the mean of what is available.
func (b *bound) elements(m *gpumetrics.Metrics) float64 {
	largest, sum, n := math.Inf(-1), 0.0, 0
	for _, f := range b.metric {
		for i := b.first; i < b.first+b.count; i++ {
			if v := m.Float(f, i); !math.IsNaN(v) {
				largest, sum, n = max(largest, v), sum+v, n+1
			}
		}
	}
	switch {
	case n == 0:
		return math.NaN()
	case b.op == opMean:
		return sum / float64(n)
	}
	return largest
}

// rate is how fast the sum of the term's counters grows per second, or their
// mean. The first sample of an era has none. If the firmware's time has not
// moved since, the last rate holds.
func (b *bound) rate(f *frame) float64 {
	d, seconds, ok := b.sum.grow(f, b)
	switch {
	case !ok:
		b.sum.rate = math.NaN()
	case seconds > 0:
		b.sum.rate = d / seconds
		if b.op == opMeanRate {
			b.sum.rate /= float64(b.sum.of)
		}
	}
	return b.sum.rate
}

// grow reads the term's counters and returns by how much they grew in which
// time; seconds is 0 if no time has passed. It is not ok if there is
// nothing to compare with: at first, in a new era, when counters went back or
// others make up the sum.
func (c *history) grow(f *frame, t *bound) (d, seconds float64, ok bool) {
	count, of, wraps := t.counters(&f.metrics, t.metric)
	return c.advance(f, count, of, wraps)
}

func (c *history) advance(f *frame, count uint64, of int, wraps bool) (d, seconds float64, ok bool) {
	if of == 0 {
		*c = history{}
		return 0, 0, false
	}
	before := *c
	ok = before.era == f.era && before.of == of && f.now >= before.at
	if ok && f.now == before.at {
		return 0, 0, true
	}
	c.count, c.of, c.at, c.era = count, of, f.now, f.era
	grown := count - before.count
	if wraps {
		grown = uint64(uint32(grown)) // modulo 2³²
	}
	if !ok || grown > math.MaxInt64 {
		return 0, 0, false
	}
	return float64(grown), float64(f.now-before.at) / 1e9, true
}

// counters adds up the elements that are available and counts them.
func (b *bound) counters(m *gpumetrics.Metrics, of []gpumetrics.Field) (sum uint64, n int, wraps bool) {
	for _, f := range of {
		for i := b.first; i < b.first+b.count; i++ {
			if v := m.Raw(f, i); v != gpumetrics.NA {
				sum, n = sum+v, n+1
			}
		}
	}
	return sum, n, n > 0 && m.Wraps(of[0])
}

// Bits of indep_throttle_status, see amdgpu_smu.h in the kernel
// (SMU_THROTTLER_…_BIT).
const (
	throttlePower   = 0xff         // PPT and other limits of power
	throttleCurrent = 0xff << 16   // TDC, EDC
	throttleThermal = 0x3fff << 32 // any sensor
	throttleProchot = 0b11 << 46   // from outside of the GPU
	throttleKnown   = throttlePower | throttleCurrent | throttleThermal | throttleProchot
)

// Bits of DCGM_FI_DEV_CLOCKS_EVENT_REASONS.
const (
	reasonPower   = 0x4  // power_cap
	reasonSlow    = 0x8  // hw_slowdown
	reasonThermal = 0x40 // hw_thermal
	reasonBrake   = 0x80 // hw_power_brake
)

func (b *bound) throttling(f *frame) float64 {
	switch b.op {
	case opMask:
		v := f.metrics.Raw(b.metric[0], b.first)
		return oneIf(available(v), v&b.mask != 0)
	case opReasons:
		v := f.metrics.Raw(b.metric[0], b.first)
		return available(v) + reasons(v)
	case opMoved:
		moved, ok := b.moved(f)
		return oneIf(ok, moved != 0)
	case opMovedReasons:
		moved, ok := b.moved(f)
		return movedReasons(moved) + ok
	default:
		return b.held(f)
	}
}

// available is 0, NaN if the firmware does not have v.
func available(v uint64) float64 {
	if v == gpumetrics.NA {
		return math.NaN()
	}
	return 0
}

func reasons(status uint64) float64 {
	out := 0
	if status&throttlePower != 0 {
		out |= reasonPower
	}
	if status&throttleCurrent != 0 {
		out |= reasonSlow
	}
	if status&throttleThermal != 0 {
		out |= reasonThermal
	}
	if status&throttleProchot != 0 {
		out |= reasonSlow | reasonBrake
	}
	return float64(out)
}

// moved has a bit set for each counter that grew since the last sample; ok is
// NaN if there is nothing to compare with yet, else 0.
func (b *bound) moved(f *frame) (bits uint, ok float64) {
	ok = math.NaN()
	for i := range b.metric {
		count, of, wraps := b.counters(&f.metrics, b.metric[i:i+1])
		c := &b.part[i]
		d, seconds, compared := c.advance(f, count, of, wraps)
		if !compared {
			c.rate = 0
			continue
		}
		if ok = 0; seconds > 0 {
			c.rate = d
		}
		if c.rate > 0 {
			bits |= 1 << i
		}
	}
	return bits, ok
}

// movedReasons takes the residencies in the order of residencyFields.
func movedReasons(moved uint) float64 {
	out := 0
	if moved&1 != 0 {
		out |= reasonSlow | reasonBrake
	}
	if moved&2 != 0 {
		out |= reasonPower
	}
	if moved&^3 != 0 {
		out |= reasonThermal
	}
	return float64(out)
}

// held adds up the time in which something held the GPU back: of each span
// between two samples the share that the residency has in all cycles, which are
// the first metric; of several residencies the largest. It counts from the first
// sample on.
func (b *bound) held(f *frame) float64 {
	count, of, wraps := b.counters(&f.metrics, b.metric[:1])
	cycles, seconds, ok := b.part[0].advance(f, count, of, wraps)
	if of == 0 {
		return math.NaN()
	}
	share := 0.0
	for i := range b.metric[1:] {
		count, of, wraps := b.counters(&f.metrics, b.metric[i+1:i+2])
		if d, _, compared := b.part[i+1].advance(f, count, of, wraps); compared && cycles > 0 {
			share = max(share, d/cycles)
		}
	}
	if ok {
		b.total += min(share, 1) * seconds * 1e9
	}
	return b.total
}
