//go:build linux && cgo

package nvml

import (
	"math"
	"time"
)

const (
	// trailSpan is how far back a rise is looked for: a minute, as DCGM's health
	// watches do, and something for readings that are taken every 30 s or so.
	trailSpan = 75 * time.Second
	trailStep = 10 * time.Second // between two points that are kept
	trailMost = int(trailSpan/trailStep) + 2
)

// trail is the recent past of a counter.
type trail struct {
	points [trailMost]trailPoint // from the oldest
	n      int
}

type trailPoint struct {
	at time.Time
	v  float64
}

// rise takes the counter's value and returns what it has grown by in the last
// minute; where readings are further apart, what it grew by in a minute on
// average since the one before. NaN means that it is not known: v is blank, or it
// is the first and not 0.
func (t *trail) rise(now time.Time, v float64) float64 {
	if math.IsNaN(v) {
		return v
	}
	if t.n > 0 && v < t.points[t.n-1].v {
		t.n = 0 // the counter was reset
	}
	for t.n > 1 && now.Sub(t.points[0].at) > trailSpan {
		t.n = copy(t.points[:], t.points[1:t.n])
	}
	first := t.points[0]
	switch {
	case t.n == 0:
		t.keep(now, v)
		if v == 0 {
			return 0
		}
		return math.NaN()
	case now.Sub(t.points[t.n-1].at) >= trailStep:
		t.keep(now, v)
	}
	grown := v - first.v
	if span := now.Sub(first.at); span > trailSpan {
		grown *= float64(time.Minute) / float64(span)
	}
	return grown
}

func (t *trail) keep(now time.Time, v float64) {
	if t.n == trailMost {
		t.n = copy(t.points[:], t.points[1:])
	}
	t.points[t.n] = trailPoint{now, v}
	t.n++
}
