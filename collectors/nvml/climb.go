package nvml

import "math"

// climb follows a counter that only goes up. One that goes back has started anew,
// after a reset of the GPU or a reload of the driver, or the driver has slipped
// for a moment: a rate over a slip would be absurd, and a counter that slips looks
// to Prometheus like one that was reset, which adds all of it once more. So a value
// below the last is held back until the next one tells which it is.
type climb struct {
	last    float64
	held    float64
	known   bool // last is set
	holding bool // held is set
}

// take returns the counter's value, or NaN while that is in doubt; anew says that
// it is not to be compared with those before.
func (c *climb) take(v float64) (value float64, anew bool) {
	switch {
	case math.IsNaN(v):
		return v, false
	case !c.known || v >= c.last:
		anew = !c.known
		c.last, c.known, c.holding = v, true, false
		return v, anew
	case c.holding && v >= c.held:
		c.last, c.holding = v, false
		return v, true
	}
	c.held, c.holding = v, true
	return math.NaN(), false
}

// moment is when a counter was read: the driver's stamp in µs, 0 if it gives none,
// and ours in ns of the monotonic clock.
type moment struct{ driver, own int64 }

const (
	micros = 1e6 // in a second
	nanos  = 1e9
)

// seconds is how much later m is than before. The driver's stamps say when a
// value was true, which matters where it refreshes values less often than we ask;
// but they are of a clock that can be set, so they are used only while they agree
// with ours to within a second and a factor of two. A driver that has not
// refreshed the value gives 0.
func (m moment) seconds(before moment) float64 {
	own := float64(m.own-before.own) / nanos
	if m.driver == 0 || before.driver == 0 {
		return own
	}
	told := float64(m.driver-before.driver) / micros
	if told != 0 && (told > 2*own+1 || told < own/2-1) {
		return own
	}
	return max(told, 0)
}

// speed makes a rate of a counter.
type speed struct {
	climb
	from  float64
	since moment
	rate  float64 // the newest, NaN before there is one
}

func newSpeed() speed { return speed{rate: math.NaN()} }

// take returns the counter's growth per second since it was last taken. A value
// that the driver has not refreshed since leaves the rate as it was, for a second
// at most.
func (s *speed) take(v float64, at moment) float64 {
	v, anew := s.climb.take(v)
	switch {
	case math.IsNaN(v):
		return v
	case anew:
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
