package accumulate

import (
	"math"
	"sort"
)

const (
	nativeSchema = 3  // 8 buckets per power of two, each 9 % wider than the one before
	maxOctaves   = 80 // of one histogram: 640 buckets, 5 KiB; no field of the catalogue needs more

	// A value below both limits counts as zero: a billionth of the plausible maximum, and a thousandth of the reading's unit.
	octavesBelowMax  = 30
	octavesBelowUnit = 10
	// octavesAboveUnit replaces the maximum if the catalogue has none.
	octavesAboveUnit = 64

	minExponent = -1008 // keeps the zero threshold a normal number
	maxExponent = 1024  // every float64 is below 2^1024
)

// nativeShape is the range of a histogram's native buckets. They are a dense array, so that an observation is
// an index and an increment.
type nativeShape struct {
	zeroThreshold float64 // a power of two, and the lower bound of the first bucket
	first         int32   // index of the first bucket
	buckets       int
}

// nativeShapeOf covers values up to maximum, in the unit of the series. unit is the reading's unit, in the same unit.
func nativeShapeOf(maximum, unit float64) nativeShape {
	if !(unit > 0) || math.IsInf(unit, 1) {
		unit = 1
	}
	if !(maximum > 0) || math.IsInf(maximum, 1) {
		maximum = math.Ldexp(unit, octavesAboveUnit)
	}
	high := ceilLog2(maximum)
	low := max(min(high-octavesBelowMax, ceilLog2(unit)-octavesBelowUnit), high-maxOctaves, minExponent)
	return nativeShape{math.Ldexp(1, low), int32(low<<nativeSchema + 1), (high - low) << nativeSchema}
}

// ceilLog2 returns the smallest e with v ≤ 2^e. v is positive and finite.
func ceilLog2(v float64) int {
	frac, exp := math.Frexp(v)
	if frac == 0.5 {
		exp--
	}
	return min(max(exp, minExponent+octavesBelowMax), maxExponent)
}

// eighths holds the lower bounds of the 8 buckets of schema 3 between 1/2 and 1: 2^(k/8-1). The bits are Prometheus' own, up
// to one unit in the last place below the nearest float64 (model/histogram/generic.go and client_golang's histogram.go).
var eighths = []float64{
	0.5, 0.5452538663326288, 0.5946035575013605, 0.6484197773255048,
	0.7071067811865475, 0.7711054127039704, 0.8408964152537144, 0.9170040432046711,
}

// nativeIndex returns the index of the native bucket of v, a positive, finite, normal number. Bucket i holds
// 2^((i-1)/8) < v ≤ 2^(i/8).
func nativeIndex(v float64) int32 {
	frac, exp := math.Frexp(v)
	return int32(sort.SearchFloat64s(eighths, frac)) + int32(exp-1)<<nativeSchema
}
