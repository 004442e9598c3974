package nvml

import "math"

// apply makes a field's value, in NVML's unit, of the results of its terms. A
// result that is not to be had is NaN, and so is what is made of it. Conversions
// that need the value before are in climb.go.
func (c convert) apply(in []float64) float64 {
	switch c {
	case usedShare:
		return shareOf(in)
	case unlessNone:
		if in[1] == 0 || math.IsNaN(in[1]) {
			return math.NaN()
		}
		return in[0]
	case asCapability:
		return in[0]*(1<<16) + in[1]
	case asFabricStatus:
		return dcgmFabricStatus(in[0], in[1])
	case asFabricError:
		return dcgmFabricError(in[0], in[1])
	}
	sum := 0.0
	for _, v := range in {
		sum += v
	}
	switch c {
	case unlessZero:
		if sum == 0 {
			return math.NaN()
		}
	case asPState:
		if sum >= unknownPState {
			return math.NaN()
		}
	case asComputeMode:
		return dcgmComputeMode(sum)
	case asBitErrors:
		return bitErrorRate(sum)
	}
	return sum
}

// scale brings a converted value into the field's unit. A field of whole numbers
// stays one, cut off as DCGM does.
func (r *reading) scale(v float64, whole bool) float64 {
	if r.mul != 0 {
		v *= r.mul
	}
	if r.div != 0 {
		v /= r.div
	}
	if whole {
		v = math.Trunc(v)
	}
	return v
}

// shareOf is DCGM's DCGM_FI_DEV_FB_USED_PERCENT of total, used and, from driver
// 510, reserved.
func shareOf(in []float64) float64 {
	usable := in[0]
	if len(in) > 2 {
		usable -= in[2]
	}
	if usable <= 0 {
		return math.NaN()
	}
	return in[1] / usable
}

const unknownPState = 32 // NVML_PSTATE_UNKNOWN

// dcgmComputeMode: DCGM closed the gap that NVML_COMPUTEMODE_EXCLUSIVE_THREAD (1)
// left, so that "prohibited" is 1 and "exclusive process" 2.
func dcgmComputeMode(mode float64) float64 {
	const prohibited, exclusiveProcess = 2, 3
	switch mode {
	case prohibited:
		return 1
	case exclusiveProcess:
		return 2
	}
	return mode
}

// States of nvmlGpuFabricInfoV_t.
const fabricCompleted = 3

// dcgmFabricStatus is dcgmFabricManagerStatus_t: NVML's states up to 2, then 3
// for success, 4 for failure, 5 for what is not known.
func dcgmFabricStatus(state, status float64) float64 {
	const success, failure, unrecognised = 3, 4, 5
	switch {
	case math.IsNaN(state) || math.IsNaN(status):
		return math.NaN()
	case state < fabricCompleted:
		return state
	case state > fabricCompleted:
		return unrecognised
	case status == 0:
		return success
	}
	return failure
}

// dcgmFabricError is a dcgmReturn_t: 0 when the fabric came up, an error when it
// did not, blank before.
func dcgmFabricError(state, status float64) float64 {
	if state != fabricCompleted {
		return math.NaN()
	}
	const nvmlError = -8
	for _, c := range [...]struct{ nvml, dcgm float64 }{
		{0, 0}, {1, -56}, {2, -1}, {3, -6}, {4, -17}, {6, -14}, {10, -11}, {15, -18}, {16, -19}, {23, -49},
	} {
		if c.nvml == status {
			return c.dcgm
		}
	}
	return nvmlError
}

// bitErrorRate decodes NVML's 4 bits of mantissa and 8 of exponent (macros
// NVML_NVLINK_ERROR_COUNTER_BER_GET): mantissa × 10^−exponent, all ones being none.
func bitErrorRate(raw float64) float64 {
	if math.IsNaN(raw) {
		return raw
	}
	bits := uint64(raw)
	mantissa, exponent := bits>>8&0xf, bits&0xff
	if mantissa == 0xf && exponent == 0xff {
		return 0
	}
	return float64(mantissa) * math.Pow10(-int(exponent))
}
