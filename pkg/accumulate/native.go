package accumulate

import "math"

const (
	maxSchema = 3   // 8 buckets per power of two, each 9 % wider than the one before
	minSchema = -4  // Prometheus knows no coarser one
	maxNative = 640 // buckets of one histogram: 5 KiB

	// A value below both of these is a zero: a billionth of the plausible
	// maximum, a thousandth of the reading's unit.
	octavesBelowMax  = 30
	octavesBelowUnit = 10
	// octavesAboveUnit stands for the maximum where the catalogue has none.
	octavesAboveUnit = 64

	minExponent = -1008 // keeps the zero threshold a normal number at every schema
	maxExponent = 1024  // every float64 is below 2^1024
)

// nativeShape is the range of native buckets that a histogram has room for: a
// dense array, so that an observation is an index and an increment.
type nativeShape struct {
	schema        int32
	zeroThreshold float64 // a power of two, and the lower bound of the first bucket
	first         int32   // index of the first bucket
	buckets       int
}

// nativeShapeOf covers values up to maximum, in the unit of the series; unit is
// the size of the reading's unit there. The schema is the finest that needs no
// more than maxNative buckets.
func nativeShapeOf(maximum, unit float64) nativeShape {
	if !(unit > 0) || math.IsInf(unit, 1) {
		unit = 1
	}
	if !(maximum > 0) || math.IsInf(maximum, 1) {
		maximum = math.Ldexp(unit, octavesAboveUnit)
	}
	high := ceilLog2(maximum)
	low := max(min(high-octavesBelowMax, ceilLog2(unit)-octavesBelowUnit), minExponent)
	for schema := maxSchema; ; schema-- {
		shape := shapeAt(schema, low, high)
		if shape.buckets <= maxNative || schema == minSchema {
			return shape
		}
	}
}

// shapeAt covers 2^low to 2^high with buckets of the schema, and a little more
// on either side where a bucket is wider than a power of two.
func shapeAt(schema, low, high int) nativeShape {
	var below, last int // indices of the buckets that end at the two powers
	if schema >= 0 {
		below, last = low<<schema, high<<schema
	} else {
		below, last = low>>-schema, -(-high >> -schema) // rounded down and up
		low = below << -schema
	}
	return nativeShape{
		schema:        int32(schema),
		zeroThreshold: math.Ldexp(1, low),
		first:         int32(below + 1),
		buckets:       last - below,
	}
}

// ceilLog2 returns the least e with v ≤ 2^e. v is positive and finite.
func ceilLog2(v float64) int {
	frac, exp := math.Frexp(v)
	if frac == 0.5 {
		exp--
	}
	return min(max(exp, minExponent+octavesBelowMax), maxExponent)
}

// The lower bounds of the 8 buckets of schema 3 between two powers of two, as
// the low 52 bits of a float64: 2^(k/8), to the bit as Prometheus has them, which
// is up to one unit in the last place below the nearest float64
// (model/histogram/generic.go and client_golang's histogram.go).
var eighths = [8]uint64{
	0x0_0000_0000_0000,
	0x1_72b8_3c7d_517b,
	0x3_06fe_0a31_b715,
	0x4_bfda_d536_2a27,
	0x6_a09e_667f_3bcc,
	0x8_ace5_422a_a0db,
	0xa_e89f_995a_d3ac,
	0xd_5818_dcfb_a486,
}

// eighthOf maps the first 4 bits of a mantissa to the last of eighths that may
// lie below it. No two of eighths share their first 4 bits.
var eighthOf = [16]uint8{0, 1, 1, 2, 3, 3, 4, 4, 5, 5, 6, 6, 6, 7, 7, 7}

// nativeIndex returns the index of the native bucket of v at a schema of at
// most 3. v must be a positive, finite, normal number. Bucket i at schema s
// holds 2^((i-1)/2^s) < v ≤ 2^(i/2^s).
func nativeIndex(v float64, schema int32) int32 {
	const mantissaBits, bias = 52, 1023
	bits := math.Float64bits(v)
	mantissa := bits & (1<<mantissaBits - 1)
	k := int32(eighthOf[mantissa>>(mantissaBits-4)])
	if mantissa > eighths[k] {
		k++ // above its lower bound, not on it
	}
	fine := (int32(bits>>mantissaBits)-bias)<<maxSchema + k
	// 2^(3-s) buckets of schema 3 make one of schema s, the last of them at i·2^(3-s).
	shift := uint(maxSchema - schema)
	return (fine + 1<<shift - 1) >> shift
}
