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

// bound is a term with the slots of its raw readings and what it remembers.
type bound struct {
	*term
	slots []int
	last  []float64 // opSum: last known readings
	sum   memory
	part  [5]memory // opMoved, opMovedReasons, opHeld
	total float64   // opHeld
}

// memory is a counter at the last sample.
type memory struct {
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
		return flag(f.values[b.slots[0]], f.values[b.slots[0]] > 0)
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

// flag is 1 or 0, and blank where v is.
func flag(v float64, on bool) float64 {
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
	told, sum := false, 0.0
	for i, slot := range b.slots {
		if v := f.values[slot]; !math.IsNaN(v) {
			b.last[i], told = v, true
		}
		sum += b.last[i]
	}
	if !told {
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
