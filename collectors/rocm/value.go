package rocm

import (
	"math"
	"time"

	"warpgauge/collectors/rocm/internal/gpumetrics"
	"warpgauge/collectors/rocm/internal/sysfs"
)

// frame holds the inputs of one Sample.
type frame struct {
	values  []float64 // raw readings by slot
	metrics gpumetrics.Metrics
	bus     [2]float64 // pcie_bw, sent and received
	unread  [3]float64 // by unread…
	added   *addedRow  // nil if missing or too old
	// processes holds the result of the last scan if scanned.
	processes *sysfs.ProcessList
	scanned   bool
	wall      time.Time // of the sample; set if added is
	// now is the time of the counters in gpu_metrics. Counters can be compared within one era only: a new era begins
	// when the clock changes or the GPU comes back.
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
	part  [5]history // opMask and opReasons of residencies, opHeld, opPart
	total float64    // opHeld, opCount
}

// history is the state of a counter at the last sample.
type history struct {
	count uint64
	of    int // number of summed elements
	at    nanos
	era   uint64 // 0 before the first sample
	rate  float64
}

// value computes the term. NaN means blank.
func (b *bound) value(f *frame) float64 {
	v := b.compute(f)
	switch {
	case b.nonzero && v == 0:
		return math.NaN()
	case b.op == opLinked && b.rate(f)*b.bytes > b.carried(&f.metrics), b.op != opLinked && b.bytes > 0 && v*b.bytes > b.carried(&f.metrics):
		return math.Inf(1) // beyond every plausible range: the session drops and counts it
	}
	if b.speed {
		return pcieGeneration(v)
	}
	return v*b.scale + b.plus
}

// carried returns how many bytes per second the links carry, and a quarter more, because a sample's time jitters. A rate
// may be from a time before its idle link became slow or narrow.
func (b *bound) carried(m *gpumetrics.Metrics) float64 {
	one := m.Float(b.width, 0) * m.Float(b.width+1, 0) * fromGB / 8
	if now := b.op == opTotal; !(one > 0) || one < b.most && !now {
		one = b.most
	}
	return 1.25 * one * float64(b.links)
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
		return min(f.values[b.slots[0]], 1)
	case opMetric, opLinked:
		return f.metrics.Float(b.metric[0], b.first)
	case opMax, opMean, opTotal:
		return b.among(&f.metrics)
	case opCount:
		return b.counted(f)
	case opRate, opMeanRate:
		return b.rate(f)
	case opBus:
		return f.bus[b.first]
	case opProcess:
		if !f.scanned {
			return math.NaN()
		}
		return f.processes.Usage(b.first)[b.at]
	case opUnread:
		return f.unread[b.first]
	case opRecord:
		return b.ofRecord(f)
	case opFixed:
		return 1
	case opMask:
		v, ok := b.status(f)
		if v&b.mask != 0 {
			return 1
		}
		return ok
	case opReasons:
		v, ok := b.status(f)
		return ok + reasons(v)
	case opPart:
		return b.grownPart(f)
	default:
		return b.held(f)
	}
}

func positive(v float64) float64 {
	if v > 0 {
		return v
	}
	return math.NaN()
}

// known sums the last known readings, so that an error count does not go back while a block is unreadable.
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

// among returns the maximum, the mean or the sum of the available elements.
func (b *bound) among(m *gpumetrics.Metrics) float64 {
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
	case b.op == opTotal:
		return sum
	}
	return largest
}

// rate returns the growth of the term's counters, or of their mean, per second. It returns NaN for the first sample of an
// era, and the last rate while the firmware's time is frozen.
func (b *bound) rate(f *frame) float64 {
	count, of, wraps := b.counters(&f.metrics, b.metric)
	d, seconds, ok := b.sum.advance(f, count, of, wraps)
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

// advance returns a counter's growth d since the last sample and the time in seconds, which may be 0. ok is false if the
// samples cannot be compared: at the first sample, in a new era, if the counter went back, or if the number of summed
// elements has changed.
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

// maxGap is the maximum time, in seconds, between two samples of a continued 32-bit counter. The fastest counter wraps
// in 12 hours.
const maxGap = 3600

// counted returns a counter that continues when its 32 bits wrap. An impossible growth means that the counter was reset.
// Then it returns the raw value.
func (b *bound) counted(f *frame) float64 {
	count, of, wraps := b.counters(&f.metrics, b.metric)
	d, seconds, ok := b.sum.advance(f, count, of, wraps)
	switch {
	case of == 0:
		return math.NaN()
	case ok && seconds == 0:
	case ok && seconds < maxGap && d <= 10*b.maxRate*(seconds+1):
		b.total += d
	default:
		b.total = float64(count)
	}
	return b.total
}

// counters sums the available elements and counts them.
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

// Bits of indep_throttle_status (SMU_THROTTLER_…_BIT in the kernel's amdgpu_smu.h).
const (
	throttlePower   = 0xff         // PPT and other limits of power
	throttleCurrent = 0xff << 16   // TDC, EDC
	throttleThermal = 0x3fff << 32 // any sensor
	throttleProchot = 0b11 << 46   // from outside the GPU
	throttleKnown   = throttlePower | throttleCurrent | throttleThermal | throttleProchot

	throttleMemory  = 1 << 34
	throttleEdge    = 1 << 35
	throttleHotspot = 1 << 36
)

// nearLimit is how many degrees below its critical temperature a sensor may throttle the GPU, because firmware starts
// before the limit.
const nearLimit = 5

// Bits of DCGM_FI_DEV_CLOCKS_EVENT_REASONS.
const (
	reasonPower   = 0x4  // power_cap
	reasonSlow    = 0x8  // hw_slowdown
	reasonThermal = 0x40 // hw_thermal
	reasonBrake   = 0x80 // hw_power_brake
)

// grownPart returns the growth of one counter as a share of another's, or the last share if no time has passed.
func (b *bound) grownPart(f *frame) float64 {
	count, of, wraps := b.counters(&f.metrics, b.metric[:1])
	all, seconds, ok := b.part[0].advance(f, count, of, wraps)
	v := f.metrics.Raw(b.metric[1], b.at)
	if v == gpumetrics.NA {
		return math.NaN()
	}
	d, _, compared := b.part[1].advance(f, v, 1, f.metrics.Wraps(b.metric[1]))
	switch {
	case !ok || !compared:
		b.sum.rate = math.NaN()
	case seconds > 0:
		b.sum.rate = min(d/positive(all), 1)
	}
	return b.sum.rate
}

// status returns the throttle status: from residencies, or else from the status word without the thermal bits of
// temperatures that are not close to their limits. ok is 0, or NaN if an unknown reading decides about a bit.
func (b *bound) status(f *frame) (bits uint64, ok float64) {
	if b.ofResidencies() {
		return b.moved(f)
	}
	bits = f.metrics.Raw(b.metric[0], b.first)
	if bits == gpumetrics.NA {
		return 0, math.NaN()
	}
	for i, c := range b.confirm {
		if bits&c.bit&b.mask == 0 {
			continue
		}
		limit := math.NaN()
		if b.slots[i] != absentSlot {
			limit = f.values[b.slots[i]]
		}
		distance := limit - f.metrics.Float(c.temperature, 0)
		if ok += 0 * distance; !(distance <= nearLimit) {
			bits &^= c.bit
		}
	}
	return bits, ok
}

func reasons(status uint64) float64 {
	out := 0
	for _, r := range [...]struct {
		mask    uint64
		reasons int
	}{
		{throttlePower, reasonPower}, {throttleCurrent, reasonSlow}, {throttleThermal, reasonThermal}, {throttleProchot, reasonSlow | reasonBrake},
	} {
		if status&r.mask != 0 {
			out |= r.reasons
		}
	}
	return float64(out)
}

// moved returns the throttle bits of the residencies that have grown since the last sample. all is 0, or NaN if a residency
// is not available or cannot be compared yet.
func (b *bound) moved(f *frame) (bits uint64, all float64) {
	for i, r := range b.metric {
		count, of, wraps := b.counters(&f.metrics, b.metric[i:i+1])
		c := &b.part[i]
		d, seconds, compared := c.advance(f, count, of, wraps)
		if !compared {
			c.rate, all = 0, math.NaN()
			continue
		}
		if seconds > 0 {
			c.rate = d
		}
		if c.rate > 0 {
			bits |= residencies[r-gpumetrics.ProchotResidency].mask
		}
	}
	return bits, all
}

// held sums the throttled time since the first sample. For each span between two samples it adds the residency's share of
// all cycles, which are the first metric. With several residencies, the largest counts.
func (b *bound) held(f *frame) float64 {
	count, of, wraps := b.counters(&f.metrics, b.metric[:1])
	cycles, seconds, ok := b.part[0].advance(f, count, of, wraps)
	known := of > 0
	share := 0.0
	for i := range b.metric[1:] {
		count, of, wraps := b.counters(&f.metrics, b.metric[i+1:i+2])
		known = known && of > 0
		if d, _, compared := b.part[i+1].advance(f, count, of, wraps); compared && cycles > 0 {
			share = max(share, d/cycles)
		}
	}
	if ok {
		b.total += min(share, 1) * seconds * 1e9
	}
	if !known {
		return math.NaN()
	}
	return b.total
}
