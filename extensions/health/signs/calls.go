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
	callsCalm  = 3                  // the ratio at which they are not slow any more
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
}

// bind begins again if the source is another one, or has another list.
func (c *calls) bind(collector string, columns int, alone bool) {
	if c.collector != collector || c.columns != columns {
		*c = calls{collector: collector, columns: columns, mean: math.NaN()}
	}
	c.alone = alone
}

// addMinute adds the counts of a minute. Those of a session that has just begun are skipped.
func (c *calls) addMinute(count uint64, seconds float64) {
	c.mean = math.NaN()
	if count > c.count && c.count > 0 && seconds >= c.seconds {
		c.mean = (seconds - c.seconds) / float64(count-c.count)
	}
	c.count, c.seconds = count, seconds
}

// slowdown is the last minute as a multiple of the baseline; NaN: not known.
func (c *calls) slowdown() float64 {
	if c.minutes < callsWarm {
		return math.NaN()
	}
	return c.mean / c.baseline
}

// compare compares the last minute with the baseline, and makes it part of that unless it is slow.
// A minute moves it no more than one that is twice as slow would, so that a few do not.
func (c *calls) compare(s *Signs, d *device) {
	ratio := c.slowdown()
	slow := c.mean >= rules.SlowCall.Seconds() && ratio > rules.SlowCallRatio
	if a := &d.alarms[alarmCalls]; c.alone && ratio > 0 {
		s.update(d, alarmCalls, slow, c.mean < rules.SlowCall.Seconds() || a.known && ratio < callsCalm) // else the baseline may be slow, too
		slow = slow || a.holds
	}
	if math.IsNaN(c.mean) || slow {
		return
	}
	if c.minutes == 0 {
		c.baseline = c.mean
	}
	c.minutes = min(c.minutes+1, callsOver)
	c.baseline += (min(c.mean, 2*c.baseline) - c.baseline) / c.minutes
}
