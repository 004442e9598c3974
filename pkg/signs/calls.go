package signs

import (
	"fmt"
	"math"
	"time"

	"warpgauge/pkg/field"
	"warpgauge/pkg/session"
)

const (
	callPeriod = int64(time.Minute) // over which calls are averaged: slow fields are in it
	callsOver  = 240                // minutes: time constant of the baseline
	callsWarm  = 30                 // minutes until there is one
	// A busy machine makes calls several times as slow. On a GPU that corrected 17,700 errors a
	// second they took 45 s and more (NVIDIA/DCGM#313).
	callsSlower = 10
	callsCalm   = 3
	callsSpread = 10  // times the mean deviation
	slowCall    = 0.1 // seconds, below which nothing is slow
)

var callTimes = times{3 * time.Minute, 10 * time.Minute}

// calls compares the time that samples take in the library with what they took before.
type calls struct {
	next    int64
	sources map[callKey]*callSource
}

type callKey struct{ collector, source string }

// callSource is the calls of one source.
type callSource struct {
	count   uint64
	seconds float64
	mean    float64 // of the last minute; NaN: none
	seen    int64
	device  *device // the GPU of the source; nil: it has several, or none
	alarm

	// The baseline, exponentially weighted. A minute moves it by no more than one that is twice
	// the baseline would, so that few that are slow do not.
	columns       int // of the source when it began: another list takes other times
	minutes       float64
	level, spread float64
}

// sync takes the counts of all sources once a minute.
func (c *calls) sync(s *Signs) {
	if s.o.Calls == nil || s.now < c.next && c.next-s.now <= callPeriod {
		return
	}
	c.next = s.now + callPeriod
	s.o.Calls(func(collector, source string, count uint64, seconds float64) {
		k := callKey{collector, source}
		if c.sources[k] == nil {
			c.sources[k] = &callSource{}
		}
		c.sources[k].take(s.now, count, seconds)
	})
	for _, f := range s.follows {
		if cs := c.sources[callKey{f.source.Collector, session.SourceID(f.source.Devices)}]; cs != nil && cs.seen == s.now {
			cs.bind(f)
			cs.judge(s)
		}
	}
	for k, cs := range c.sources {
		if s.now-cs.seen > forget {
			delete(c.sources, k)
		}
	}
}

// take takes the counts of a source. Those of a session that has just begun say nothing.
func (c *callSource) take(now int64, count uint64, seconds float64) {
	c.mean = math.NaN()
	if count > c.count && c.count > 0 && seconds >= c.seconds {
		c.mean = (seconds - c.seconds) / float64(count-c.count)
	}
	c.count, c.seconds, c.seen = count, seconds, now
}

// bind finds whose the calls are.
func (c *callSource) bind(f *follow) {
	if c.columns != len(f.source.Columns) {
		c.columns, c.minutes = len(f.source.Columns), 0
	}
	gpus := 0
	for _, d := range f.devices {
		if d.device != nil && d.Level == field.GPU && d.Parent == "" {
			c.device, gpus = d.device, gpus+1
		}
	}
	if gpus != 1 {
		c.device = nil
	}
}

// slowdown is the last minute as a multiple of the baseline; NaN: not known.
func (c *callSource) slowdown() float64 {
	if c.minutes < callsWarm {
		return math.NaN()
	}
	return c.mean / c.level
}

// judge compares the last minute with the baseline, and makes it part of that.
func (c *callSource) judge(s *Signs) {
	if math.IsNaN(c.mean) {
		return
	}
	if ratio := c.slowdown(); !math.IsNaN(ratio) {
		slow := c.mean >= slowCall && ratio > callsSlower && c.mean > c.level+callsSpread*c.spread
		calm := c.mean < slowCall || ratio < callsCalm
		if c.update(s.now, slow, calm, callTimes) && c.device != nil {
			s.tell(c.device, slowCalls, fmt.Sprintf("a sample takes %.2g s in the library, which took %.2g s before", c.mean, c.level), !c.holds)
		}
		if slow || c.holds {
			return
		}
	}
	c.minutes = min(c.minutes+1, callsOver)
	v := c.mean
	if c.minutes > 1 {
		v = min(v, 2*c.level)
	}
	c.spread += (math.Abs(v-c.level)*min(c.minutes-1, 1) - c.spread) / c.minutes
	c.level += (v - c.level) / c.minutes
}
