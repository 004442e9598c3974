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

// Numbers holds an agent's known numbers by gate name. Missed ticks are per minute; sample seconds are a mean.
type Numbers map[string]float64

// Limit is the largest allowed growth of a number, of gateSeriesLost the largest loss.
type Limit struct {
	Value    float64
	Relative bool // Value is a share of the previous number
}

// defaultLimits returns the limits of all gates.
func defaultLimits() map[string]Limit {
	return map[string]Limit{
		opamp.GateStalled:       {Value: 0},
		opamp.GateLost:          {Value: 0},
		opamp.GateSampleSeconds: {Value: 0.5},
		opamp.GateMissedTicks:   {Value: 6},
		opamp.GateAbsentFields:  {Value: 64},
		opamp.GateSeries:        {Value: 1, Relative: true},
		gateSeriesLost:          {Value: 0.5, Relative: true},
	}
}

// gateSeriesLost is how far the number of opamp.GateSeries may shrink.
const gateSeriesLost = "series_lost"

// UnmarshalText parses a number or a percentage such as 50%.
func (l *Limit) UnmarshalText(text []byte) error {
	number, relative := strings.CutSuffix(string(text), "%")
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || !(v >= 0) || math.IsInf(v, 0) {
		return fmt.Errorf("invalid limit %q: use a number or a percentage such as 50%%", text)
	}
	if relative {
		v /= 100
	}
	*l = Limit{Value: v, Relative: relative}
	return nil
}

// breach describes a number that exceeds its limit; it is empty if there is none.
func breach(limits map[string]Limit, before, after Numbers) string {
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		number, sign := name, 1.0
		if name == gateSeriesLost {
			number, sign = opamp.GateSeries, -1
		}
		was, known := before[number]
		is, reported := after[number]
		allowed := limits[name].Value
		if limits[name].Relative {
			allowed *= was
		}
		if known && reported && sign*(is-was) > allowed {
			return fmt.Sprintf("%s: %.4g, before %.4g", name, is, was)
		}
	}
	return ""
}

// window collects an agent's numbers since the agent began to run its list.
type window struct {
	since   time.Time
	last    Numbers // as reported
	missed  float64 // at the beginning of the window; NaN: unknown
	samples float64 // sum
	count   int
}

func newWindow() *window { return &window{missed: math.NaN()} }

func (w *window) add(n Numbers, now time.Time) {
	if missed, ok := n[opamp.GateMissedTicks]; ok && !(missed >= w.missed) { // first report, or the exporter restarted
		w.missed, w.since = missed, now
	}
	if seconds, ok := n[opamp.GateSampleSeconds]; ok {
		w.samples += seconds
		w.count++
	}
	w.last = n
}

// restart clears the window after a change of the list in service.
func (w *window) restart(now time.Time) {
	last := w.last
	*w = window{since: now, last: last, missed: math.NaN()}
	if missed, ok := last[opamp.GateMissedTicks]; ok {
		w.missed = missed
	}
}

// numbers returns the window's numbers in a form that can be compared between windows.
func (w *window) numbers(now time.Time) Numbers {
	n := Numbers{}
	maps.Copy(n, w.last)
	if w.count > 0 {
		n[opamp.GateSampleSeconds] = w.samples / float64(w.count)
	}
	delete(n, opamp.GateMissedTicks)
	if minutes := now.Sub(w.since).Minutes(); minutes >= 1 && !math.IsNaN(w.missed) { // a shorter time is too short for a rate
		if missed, ok := w.last[opamp.GateMissedTicks]; ok {
			n[opamp.GateMissedTicks] = (missed - w.missed) / minutes
		}
	}
	return n
}
