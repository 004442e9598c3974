package rocm

import (
	"math"

	"warpgauge/collectors/rocm/internal/gpumetrics"
)

// rate is how fast the sum of the term's counters grows per second, or their
// mean. The first sample of an era has none. Where the firmware's time has not
// moved since, the last rate still stands.
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

// grow takes the term's counters in and says by how much they grew in which
// time; seconds is 0 where no time has passed. It is not ok where there is
// nothing to compare with: at first, in a new era, when counters went back or
// others make up the sum.
func (c *memory) grow(f *frame, t *bound) (d, seconds float64, ok bool) {
	count, of, wraps := t.counters(&f.metrics, t.metric)
	return c.advance(f, count, of, wraps)
}

func (c *memory) advance(f *frame, count uint64, of int, wraps bool) (d, seconds float64, ok bool) {
	if of == 0 {
		*c = memory{}
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

// counters adds up the elements that are available and says how many they are.
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
