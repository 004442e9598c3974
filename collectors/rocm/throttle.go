package rocm

import (
	"math"

	"warpgauge/collectors/rocm/internal/gpumetrics"
)

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
		return flag(available(v), v&b.mask != 0)
	case opReasons:
		v := f.metrics.Raw(b.metric[0], b.first)
		return available(v) + reasons(v)
	case opMoved:
		moved, ok := b.moved(f)
		return flag(ok, moved != 0)
	case opMovedReasons:
		moved, ok := b.moved(f)
		return movedReasons(moved) + ok
	default:
		return b.held(f)
	}
}

// available is 0, NaN where the firmware does not have v.
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
// NaN where nothing can be said yet, else 0.
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
