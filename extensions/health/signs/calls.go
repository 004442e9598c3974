package signs

import (
	"math"
	"time"

	"warpgauge/pkg/rules"
)

const (
	callPeriod = int64(time.Minute) // over which calls are averaged: slow fields are in it
	callsOver  = 240                // minutes: time constant of the baseline
	callsWarm  = 30                 // minutes until there is one
	callsSlow  = 3                  // minutes in a row, which are not an accident
)

// calls holds the library calls of a source, which is named by its first device.
type calls struct {
	collector string
	alone     bool // the device is the source's only GPU
	columns   int  // of the source: another list takes other times
	count     uint64
	seconds   float64
	mean      float64 // of the last minute; NaN: none
	minutes   float64 // in the baseline, which is exponentially weighted
	baseline  float64
	slow      int  // minutes without a break that were slow, and those since in which the calls were not fast again
	wasSlow   bool // for callsSlow minutes, at some time
}

// bind begins again if the source is another one, or has another list.
func (c *calls) bind(collector string, columns int, alone bool) {
	if c.collector != collector || c.columns != columns {
		*c = calls{collector: collector, columns: columns, mean: math.NaN()}
	}
	c.alone = alone
}

// addMinute adds the counts of a minute, compares it with the baseline, and makes it part of that unless it is slow. It
// returns the slowdown that is judged; NaN: it is not known. A minute in which a session begins is skipped.
func (c *calls) addMinute(count uint64, seconds float64) float64 {
	c.mean = math.NaN()
	if count > c.count && c.count > 0 && seconds >= c.seconds {
		c.mean = (seconds - c.seconds) / float64(count-c.count)
	}
	c.count, c.seconds = count, seconds

	ratio, short := c.slowdown(), c.mean < rules.SlowCall.Seconds()
	slow := c.alone && !short && ratio > rules.SlowCalls.Threshold
	switch {
	case slow:
		c.slow++
		c.wasSlow = c.wasSlow || c.slow >= callsSlow
	case short, ratio < rules.SlowCalls.Clear, c.slow < callsSlow:
		c.slow = 0
	}
	if c.slow == 0 && !math.IsNaN(c.mean) {
		c.addToBaseline()
	}
	switch {
	case !c.alone || math.IsNaN(ratio):
		return math.NaN()
	case short:
		return 0
	case !c.wasSlow && !slow: // the baseline may be slow, too
		return math.NaN()
	}
	return ratio
}

// addToBaseline adds the last minute, which moves the baseline no more than one that is twice as slow would, so that a
// few do not.
func (c *calls) addToBaseline() {
	if c.minutes == 0 {
		c.baseline = c.mean
	}
	c.minutes = min(c.minutes+1, callsOver)
	c.baseline += (min(c.mean, 2*c.baseline) - c.baseline) / c.minutes
}

// slowdown is the last minute as a multiple of the baseline; NaN: not known.
func (c *calls) slowdown() float64 {
	if c.minutes < callsWarm {
		return math.NaN()
	}
	return c.mean / c.baseline
}
