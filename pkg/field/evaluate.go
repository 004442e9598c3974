package field

import (
	"math"
	"time"
)

// Outcome is the result of a condition for a reading. The highest outcome wins: one of several links is enough.
type Outcome uint8

// Outcomes.
const (
	Silent Outcome = iota // no value, or nothing to compare it with
	Well
	Between // below the threshold, but too high to clear the condition
	Unwell
)

// ConditionState is the memory of one reading's evaluation. The zero ConditionState has seen no value.
type ConditionState struct {
	Reached bool      // for Falls: the value has reached the threshold before
	Growth  Growth    // of Rises
	since   time.Time // for AtLeast: when the first value was read
}

// Evaluate evaluates a value that was read at a time.
func (c *Condition) Evaluate(s *ConditionState, v float64, at time.Time) Outcome {
	if math.IsNaN(v) {
		return Silent
	}
	var bad bool
	switch c.Test {
	case AtLeast:
		bad = v >= c.Threshold
		if s.since.IsZero() || at.Before(s.since) {
			s.since = at
		}
		switch {
		case !bad && c.Clear > 0 && v > c.Clear:
			return Between
		case !bad && at.Sub(s.since) < c.Within:
			return Silent
		}
	case AtMost:
		bad = v <= c.Threshold
	case Equal:
		bad = v == c.Threshold
	case Falls:
		if bad = v < c.Threshold; bad && !s.Reached {
			return Silent // it has not been up yet
		}
		s.Reached = true
	case Rises:
		grown := s.Growth.Add(c.Within, at, v)
		if math.IsNaN(grown) {
			return Silent
		}
		bad = grown >= c.Threshold
	default:
		return Silent
	}
	if bad {
		return Unwell
	}
	return Well
}

// Growth is the recent past of a counter. It reaches back for the span and maxLate, since
// readings may be half a minute apart.
type Growth struct {
	points [growthPoints]point // the oldest first
	n      int
}

type point struct {
	at time.Time
	v  float64
}

const (
	growthPoints = 9
	maxLate      = 15 * time.Second
)

// Add adds the counter's value and returns its growth within the span. If readings are further apart, it returns the
// mean growth per span since the last one. NaN means unknown: v is blank, or is the first value and not 0.
func (g *Growth) Add(span time.Duration, at time.Time, v float64) float64 {
	if math.IsNaN(v) {
		return v
	}
	if g.n > 0 && (v < g.points[g.n-1].v || at.Before(g.points[g.n-1].at)) {
		g.n = 0 // the counter was reset, or the clock was set back
	}
	reach := span + min(span/4, maxLate)
	for g.n > 1 && at.Sub(g.points[0].at) > reach {
		g.n = copy(g.points[:], g.points[1:g.n])
	}
	if g.n == 0 {
		g.keep(at, v)
		if v == 0 {
			return 0
		}
		return math.NaN()
	}
	first := g.points[0]
	if at.Sub(g.points[g.n-1].at) >= span/6 {
		g.keep(at, v)
	}
	grown := v - first.v
	if since := at.Sub(first.at); since > reach {
		grown *= float64(span) / float64(since)
	}
	return grown
}

// Restart forgets the past: growth counts from v.
func (g *Growth) Restart(at time.Time, v float64) {
	g.n = 0
	g.keep(at, v)
}

func (g *Growth) keep(at time.Time, v float64) {
	if g.n == growthPoints {
		g.n = copy(g.points[:], g.points[1:])
	}
	g.points[g.n] = point{at, v}
	g.n++
}
