package fleet

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"warpgauge/extensions/remote/opamp"
)

// Numbers has an agent's number for each gate, by the gate's name; an unknown number has no entry. Missed
// ticks are per minute, sample seconds a mean.
type Numbers map[string]float64

// Limit is by how much a number may grow.
type Limit struct {
	Value    float64
	Relative bool // Value is a share of the number before
}

// defaultLimits has all gates.
func defaultLimits() map[string]Limit {
	return map[string]Limit{
		opamp.GateStalled:       {Value: 0},
		opamp.GateLost:          {Value: 0},
		opamp.GateSampleSeconds: {Value: 0.5},
		opamp.GateMissedTicks:   {Value: 6},
		opamp.GateAbsentFields:  {Value: 64},
		opamp.GateSeries:        {Value: 1, Relative: true},
	}
}

// UnmarshalText reads a number or a share such as 50%.
func (l *Limit) UnmarshalText(text []byte) error {
	number, relative := strings.CutSuffix(string(text), "%")
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || !(v >= 0) || math.IsInf(v, 0) {
		return fmt.Errorf("%q is no limit: write a number or a share such as 50%%", text)
	}
	if relative {
		v /= 100
	}
	*l = Limit{Value: v, Relative: relative}
	return nil
}

// breach says which number has grown more than it may; empty: none that is known.
func breach(limits map[string]Limit, before, after Numbers) string {
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		was, known := before[name]
		is, reported := after[name]
		allowed := limits[name].Value
		if limits[name].Relative {
			allowed *= was
		}
		if known && reported && is-was > allowed {
			return fmt.Sprintf("%s: %.4g, before %.4g", name, is, was)
		}
	}
	return ""
}

// window gathers an agent's numbers since it runs its list.
type window struct {
	since   time.Time
	last    Numbers // as reported
	missed  float64 // when the window began; NaN: not known
	samples float64 // sum
	count   int
}

func newWindow() *window { return &window{missed: math.NaN()} }

func (w *window) add(n Numbers, now time.Time) {
	if missed, ok := n[opamp.GateMissedTicks]; ok && !(missed >= w.missed) { // the first, or the exporter started again
		w.missed, w.since = missed, now
	}
	if seconds, ok := n[opamp.GateSampleSeconds]; ok {
		w.samples += seconds
		w.count++
	}
	w.last = n
}

// restart forgets the window, because another list is in service.
func (w *window) restart(now time.Time) {
	last := w.last
	*w = window{since: now, last: last, missed: math.NaN()}
	if missed, ok := last[opamp.GateMissedTicks]; ok {
		w.missed = missed
	}
}

// numbers are comparable with those of another window.
func (w *window) numbers(now time.Time) Numbers {
	n := Numbers{}
	maps.Copy(n, w.last)
	if w.count > 0 {
		n[opamp.GateSampleSeconds] = w.samples / float64(w.count)
	}
	delete(n, opamp.GateMissedTicks)
	if minutes := now.Sub(w.since).Minutes(); minutes >= 1 && !math.IsNaN(w.missed) { // less is too short for a rate
		if missed, ok := w.last[opamp.GateMissedTicks]; ok {
			n[opamp.GateMissedTicks] = (missed - w.missed) / minutes
		}
	}
	return n
}
