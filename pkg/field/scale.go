package field

import "math"

// Scale turns a reading into the value of a series. A factor such as 0.001 has no
// exact float64, so multiplying by it would show 9 mW as 0.009000000000000001 W, and
// count 70 % above the bucket 0.7; dividing by 1000 is rounded once, to 0.009.
type Scale struct{ mul, div float64 }

// NewScale returns the Scale of a Field's factor.
func NewScale(factor float64) Scale {
	if factor != 0 && math.Abs(factor) < 1 {
		if inverse := math.Round(1 / factor); 1/inverse == factor {
			return Scale{1, inverse}
		}
	}
	return Scale{factor, 1}
}

// Of returns the value of a series. NaN stays NaN.
func (s Scale) Of(reading float64) float64 {
	v := reading * s.mul
	if s.div != 1 {
		v /= s.div
	}
	return v
}
