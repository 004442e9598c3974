package signs

import (
	"fmt"
	"math"
	"slices"
	"time"

	"warpgauge/pkg/field"
	"warpgauge/pkg/session"
)

const (
	callPeriod = int64(time.Minute) // over which calls are averaged: slow fields are in it
	callsKept  = 240                // means of which the median is the baseline: four hours
	callsWarm  = 30                 // until there is a baseline
	// A busy machine makes calls several times as slow. A GPU that corrected 17,700 errors a
	// second made them ten thousand times as slow (DCGM #313).
	callsSlower = 10
	callsCalm   = 3
	callsMADs   = 10
	slowCall    = 0.1 // seconds, below which nothing is slow
	slowFor     = 3 * time.Minute
)

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
	columns int // of the source when the baseline began: another list takes other times
	kept    []float64
	oldest  int
	mean    float64 // of the last minute; NaN: none
	median  float64 // NaN: not known yet
	mad     float64
	device  *device // nil: the source has several GPUs, or none
	seen    int64
	alarm
}

// sync looks at the calls once a minute.
func (c *calls) sync(s *Signs, now int64) {
	if s.o.Calls == nil || now < c.next && c.next-now <= callPeriod {
		return
	}
	c.next = now + callPeriod
	s.o.Calls(func(collector, source string, count uint64, seconds float64) {
		k := callKey{collector, source}
		cs := c.sources[k]
		if cs == nil {
			cs = &callSource{mean: math.NaN(), median: math.NaN(), kept: make([]float64, 0, callsKept)}
			c.sources[k] = cs
		}
		cs.seen = now
		cs.take(count, seconds)
	})
	for _, f := range s.follows {
		if len(f.source.Devices) > 0 {
			if cs := c.sources[callKey{f.source.Collector, session.SourceID(f.source.Devices)}]; cs != nil {
				cs.bind(f)
			}
		}
	}
	for k, cs := range c.sources {
		switch {
		case now-cs.seen > int64(forget):
			delete(c.sources, k)
		case cs.seen == now:
			cs.judge(s, now)
		}
	}
}

// take takes the counts of a source.
func (c *callSource) take(count uint64, seconds float64) {
	c.mean = math.NaN()
	if count > c.count && c.count > 0 && seconds >= c.seconds {
		c.mean = (seconds - c.seconds) / float64(count-c.count)
	}
	c.count, c.seconds = count, seconds
}

// bind finds whose the calls are.
func (c *callSource) bind(f *follow) {
	if c.columns != len(f.source.Columns) {
		c.columns, c.kept, c.oldest, c.median = len(f.source.Columns), c.kept[:0], 0, math.NaN()
	}
	c.device = nil
	for i := range f.devices {
		if d := f.devices[i].device; d != nil && d.Level == field.GPU && d.Parent == "" {
			if c.device != nil {
				c.device = nil
				return
			}
			c.device = d
		}
	}
}

// judge compares the last minute with the baseline, and makes it part of that unless it is slow.
func (c *callSource) judge(s *Signs, now int64) {
	if math.IsNaN(c.mean) {
		return
	}
	slow := !math.IsNaN(c.median) && c.mean >= slowCall && c.mean > callsSlower*c.median && c.mean > c.median+callsMADs*c.mad
	calm := !math.IsNaN(c.median) && (c.mean < slowCall || c.mean < callsCalm*c.median)
	if c.update(now, slow, calm, slowFor, calmFor) && c.device != nil {
		s.tell(c.device, SlowCalls, fmt.Sprintf("a sample takes %.3g s in the library, which took %.3g s before", c.mean, c.median), now, !c.holds)
	}
	if !slow && !c.holds {
		c.learn()
	}
}

// learn makes the last minute part of the baseline.
func (c *callSource) learn() {
	if len(c.kept) < callsKept {
		c.kept = append(c.kept, c.mean)
	} else {
		c.kept[c.oldest] = c.mean
		c.oldest = (c.oldest + 1) % callsKept
	}
	if len(c.kept) < callsWarm {
		return
	}
	var scratch [callsKept]float64
	sorted := scratch[:len(c.kept)]
	copy(sorted, c.kept)
	slices.Sort(sorted)
	c.median = sorted[len(sorted)/2]
	for i, v := range sorted {
		sorted[i] = math.Abs(v - c.median)
	}
	slices.Sort(sorted)
	c.mad = sorted[len(sorted)/2]
}
