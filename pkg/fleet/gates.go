package fleet

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"warpgauge/pkg/opamp"
)

// Gates, by their index in Numbers and Limits.
const (
	stalled = iota
	lost
	sampleSeconds
	missedTicks
	absentFields
	series
	gates
)

// gateTable has the name of each gate as agents report it, and what an agent's number may grow by if
// the directory does not say.
var gateTable = [gates]struct {
	name  string
	limit Limit
}{
	stalled:       {opamp.GateStalled, Limit{Value: 0}},
	lost:          {opamp.GateLost, Limit{Value: 0}},
	sampleSeconds: {opamp.GateSampleSeconds, Limit{Value: 0.5}},
	missedTicks:   {opamp.GateMissedTicks, Limit{Value: 6}},
	absentFields:  {opamp.GateAbsentFields, Limit{Value: 64}},
	series:        {opamp.GateSeries, Limit{Value: 1, Relative: true}},
}

// Numbers has what an agent reports for each gate; NaN is unknown. Missed ticks are per minute,
// sample seconds a mean.
type Numbers [gates]float64

func unknown() (n Numbers) {
	for i := range n {
		n[i] = math.NaN()
	}
	return n
}

// MarshalJSON writes an array with null for what is unknown.
func (n Numbers) MarshalJSON() ([]byte, error) {
	var out [gates]*float64
	for i := range n {
		if !math.IsNaN(n[i]) && !math.IsInf(n[i], 0) {
			out[i] = &n[i]
		}
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (n *Numbers) UnmarshalJSON(text []byte) error {
	var in [gates]*float64
	if err := json.Unmarshal(text, &in); err != nil {
		return err
	}
	*n = unknown()
	for i, v := range in {
		if v != nil {
			n[i] = *v
		}
	}
	return nil
}

// Limit is by how much a number may grow.
type Limit struct {
	Value    float64
	Relative bool // Value is a share of the number before
	Off      bool
}

// Limits has one for each gate.
type Limits [gates]Limit

func parseLimit(text string) (l Limit, err error) {
	if text == "off" {
		return Limit{Off: true}, nil
	}
	number, relative := strings.CutSuffix(text, "%")
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || v < 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return l, fmt.Errorf("%q is no limit: write a number, a share such as 50%%, or off", text)
	}
	if relative {
		v /= 100
	}
	return Limit{Value: v, Relative: relative}, nil
}

// newLimits reads limits by the names of gates; the last that names one decides.
func newLimits(all ...map[string]string) (l Limits, err error) {
	for i := range l {
		l[i] = gateTable[i].limit
	}
	for _, texts := range all {
		for _, name := range slices.Sorted(maps.Keys(texts)) {
			i := gateIndex(name)
			if i < 0 {
				return l, fmt.Errorf("rollout.gates: there is no gate %q", name)
			}
			if l[i], err = parseLimit(texts[name]); err != nil {
				return l, fmt.Errorf("rollout.gates: %s: %w", name, err)
			}
		}
	}
	return l, nil
}

func gateIndex(name string) int {
	for i := range gateTable {
		if gateTable[i].name == name {
			return i
		}
	}
	return -1
}

// breach says which number has grown more than it may; empty: none that is known.
func (l *Limits) breach(before, after *Numbers) string {
	for i := range l {
		allowed := l[i].Value
		if l[i].Relative {
			allowed *= before[i]
		}
		// A comparison with NaN is false: what is unknown fails nothing.
		if !l[i].Off && after[i]-before[i] > allowed {
			return fmt.Sprintf("%s: %.4g, before %.4g", gateTable[i].name, after[i], before[i])
		}
	}
	return ""
}

// window gathers an agent's numbers since it runs its list.
type window struct {
	since   time.Time
	last    Numbers // as reported
	missed  float64 // when the window began
	samples float64 // sum
	count   int
}

func newWindow() *window { return &window{last: unknown(), missed: math.NaN()} }

func (w *window) add(n *Numbers, now time.Time) {
	if math.IsNaN(w.missed) || n[missedTicks] < w.missed { // the exporter started again
		w.missed, w.since = n[missedTicks], now
	}
	if s := n[sampleSeconds]; !math.IsNaN(s) {
		w.samples += s
		w.count++
	}
	w.last = *n
}

// restart begins again with what is known: another list is in service.
func (w *window) restart(now time.Time) {
	w.since, w.missed, w.samples, w.count = now, w.last[missedTicks], 0, 0
}

// numbers are comparable with those of another window.
func (w *window) numbers(now time.Time) Numbers {
	n := w.last
	if w.count > 0 {
		n[sampleSeconds] = w.samples / float64(w.count)
	}
	if minutes := now.Sub(w.since).Minutes(); minutes >= 1 {
		n[missedTicks] = (w.last[missedTicks] - w.missed) / minutes
	} else {
		n[missedTicks] = math.NaN() // too short for a rate
	}
	return n
}
