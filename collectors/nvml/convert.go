//go:build linux && cgo

package nvml

import (
	"math"
	"slices"
)

// apply computes a field's value, in NVML's unit, from the results of its terms. A result that is not available is NaN
// and makes the value NaN. Conversions that need the previous value are in climb and speed.
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
	case lowest:
		return slices.Min(in)
	case worstBitErrors:
		worst := 0.0
		for _, v := range in {
			worst = max(worst, bitErrorRate(v)) // NaN if one is
		}
		return worst
	}
	sum := 0.0
	for _, v := range in {
		sum += v
	}
	switch {
	case c == unlessZero && sum == 0, c == asPState && sum >= unknownPState:
		return math.NaN()
	case c == asComputeMode && sum >= 2: // DCGM closed the gap at NVML_COMPUTEMODE_EXCLUSIVE_THREAD (1)
		return sum - 1
	case c == asBitErrors:
		return bitErrorRate(sum)
	}
	return sum
}

// scale converts a value to the field's unit. Integer fields are truncated, as DCGM does.
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

// shareOf computes DCGM_FI_DEV_FB_USED_PERCENT from total, used and, since driver 510, reserved memory.
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

// States of nvmlGpuFabricInfoV_t.
const fabricCompleted = 3

// dcgmFabricStatus returns a dcgmFabricManagerStatus_t: NVML's states up to 2, then 3 for success, 4 for failure, 5 for
// an unknown state.
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

// dcgmFabricError returns a dcgmReturn_t: 0 if the fabric came up, an error code if it failed, blank before completion.
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

// bitErrorRate decodes NVML's rate of 4 bits mantissa and 8 bits exponent (macros NVML_NVLINK_ERROR_COUNTER_BER_GET) as
// mantissa × 10^−exponent. All bits set means 0.
func bitErrorRate(raw float64) float64 {
	if math.IsNaN(raw) {
		return raw
	}
	bits := uint64(raw)
	mantissa, exponent := bits>>8&0xf, bits&0xff
	if mantissa == 0xf && exponent == 0xff {
		return 0
	}
	return float64(mantissa) / math.Pow10(int(exponent)) // rounded once: 3 × 1e-8 is 3.0000000000000004e-8
}

// climb filters a counter that only goes up. If a counter goes back, either the GPU or driver was reset, or one
// reading was wrong; after a wrong reading Prometheus would add the whole counter again. So climb holds back a value
// below the last one until the next value shows which case it is.
type climb struct {
	last    float64
	held    float64
	known   bool // last is set
	holding bool // held is set
}

// update returns the counter's value, or NaN while that value is in doubt. restarted reports that the value must not be
// compared with earlier ones.
func (c *climb) update(v float64) (value float64, restarted bool) {
	switch {
	case math.IsNaN(v):
		return v, false
	case !c.known || v >= c.last:
		restarted = !c.known
		c.last, c.known, c.holding = v, true, false
		return v, restarted
	case c.holding && v >= c.held:
		c.last, c.holding = v, false
		return v, true
	}
	c.held, c.holding = v, true
	return math.NaN(), false
}

// moment is when a counter was read: the driver's timestamp in µs (0 if none) and the local monotonic clock in ns.
type moment struct{ driver, own int64 }

const (
	micros = 1e6 // in a second
	nanos  = 1e9
)

// seconds returns the time from before to m. The driver's timestamps are better if the driver refreshes values less often
// than the collector reads them. But the driver's clock can be set, so they count only while they agree with the local clock
// to within a second and a factor of two. If the driver has not refreshed the value, seconds returns 0.
func (m moment) seconds(before moment) float64 {
	own := float64(m.own-before.own) / nanos
	if m.driver == 0 || before.driver == 0 {
		return own
	}
	stamped := float64(m.driver-before.driver) / micros
	if stamped != 0 && (stamped > 2*own+1 || stamped < own/2-1) {
		return own
	}
	return max(stamped, 0)
}

// speed computes a counter's rate.
type speed struct {
	climb
	from  float64
	since moment
	rate  float64 // newest rate; NaN before the first
}

// update returns the counter's growth per second since the last update. While the driver does not refresh the counter,
// the last rate stays for up to one second.
func (s *speed) update(v float64, at moment) float64 {
	v, restarted := s.climb.update(v)
	switch {
	case math.IsNaN(v):
		return v
	case restarted:
		s.from, s.since, s.rate = v, at, math.NaN()
		return s.rate
	}
	d := at.seconds(s.since)
	if d <= 0 {
		if at.own-s.since.own > nanos {
			return math.NaN()
		}
		return s.rate
	}
	s.rate = (v - s.from) / d
	s.from, s.since = v, at
	return s.rate
}
