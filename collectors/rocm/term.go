package rocm

import (
	"math"

	"warpgauge/collectors/rocm/internal/gpumetrics"
	"warpgauge/collectors/rocm/internal/raw"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// op is what a term does with its inputs.
type op uint8

const (
	opRaw          op = iota // a raw reading
	opSum                    // the sum of raw readings, of those blank now the last known
	opFree                   // first raw reading less the second
	opShare                  // first raw reading by the second
	opAny                    // 1 if the raw reading is above 0
	opMetric                 // the first element of gpu_metrics
	opMax                    // the largest of the elements that are available
	opMean                   // their mean
	opRate                   // growth of the sum of counters, per second
	opMeanRate               // the same of their mean
	opMask                   // 1 if one of the mask's bits is set in gpu_metrics
	opMoved                  // 1 if one of the counters grew
	opReasons                // NVIDIA's clock event bits from the bits of the throttle status
	opMovedReasons           // the same from residencies: power, heat × 3, PROCHOT
	opHeld                   // nanoseconds: Σ of the largest share of residencies in all cycles × time
	opBus                    // pcie_bw, 0 sent, 1 received
	opFixed                  // scale
)

// term is one way to get at a value.
type term struct {
	op      op
	raw     []raw.Reading
	metric  []gpumetrics.Field
	first   int // elements first … first+count-1 of each metric
	count   int
	scale   float64 // of the result
	mask    uint64
	nonzero bool // 0 means that the board does not tell
	speed   bool // GT/s, of which the PCIe generation is wanted
	// group parts terms that are one quantity from those that stand in for it:
	// only the first group that the board has is used, so that a value never
	// jumps from one sensor to another.
	group int
}

// spec is a column in the making.
type spec struct {
	field  field.ID
	labels []collector.Label
	terms  []term // the first that has a value counts
}

func label(name, value string) []collector.Label {
	return []collector.Label{{Name: name, Value: value}}
}

// read is a raw reading × scale.
func read(k raw.Kind, index uint8, scale float64) term {
	return term{op: opRaw, raw: []raw.Reading{{Kind: k, Index: index}}, scale: scale}
}

func pair(op op, a, b raw.Reading, scale float64) term {
	return term{op: op, raw: []raw.Reading{a, b}, scale: scale}
}

// metric is element i of gpu_metrics × scale.
func metric(f gpumetrics.Field, i int, scale float64) term {
	return term{op: opMetric, metric: []gpumetrics.Field{f}, first: i, count: 1, scale: scale}
}

// over is op over elements first … first+count-1 of gpu_metrics.
func over(op op, scale float64, first, count int, f ...gpumetrics.Field) term {
	return term{op: op, metric: f, first: first, count: count, scale: scale}
}

// orElse marks a term as one that stands in for those of lower groups.
func (t term) orElse(group int) term {
	t.group = group
	return t
}

// told makes 0 blank.
func (t term) told() term {
	t.nonzero = true
	return t
}

// bits makes a term look at some bits only.
func (t term) bits(mask uint64) term {
	t.mask = mask
	return t
}

// generation makes a speed a PCIe generation.
func (t term) generation() term {
	t.speed = true
	return t
}

// pcieGeneration is the generation of a speed in GT/s, NaN for one that is none.
func pcieGeneration(speed float64) float64 {
	out := math.NaN()
	for i, least := range [...]float64{2.5, 5, 8, 16, 32, 64} {
		if speed >= least {
			out = float64(i + 1)
		}
	}
	return out
}
