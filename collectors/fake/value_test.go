package fake

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/collector/collectortest"
)

// TestDeterminism checks that nodes with the same seed are equal at any time, that nodes with different seeds differ, and
// that counters never go back.
func TestDeterminism(t *testing.T) {
	rows := func(o Options, at ...time.Duration) (out [][]float64, devices []collector.Device) {
		clock := newClock()
		o.Now = clock.now
		n := openNode(t, newWorld(t, o), collectortest.Fields())
		begin := clock.t
		for _, d := range at {
			clock.t = begin.Add(d)
			for i, s := range n.sources {
				row := testkit.Get(sampleRow(s))(t)
				for j, c := range s.(*source).cells {
					if before := len(out) - len(n.sources); before >= 0 && c.op > firstCounter && row[j] < out[before][j] {
						t.Errorf("%s, source %d: field %d went from %v back to %v", o.Profile, i, s.Columns()[j].Field, out[before][j], row[j])
					}
				}
				out = append(out, row)
			}
		}
		for _, s := range n.sources {
			devices = append(devices, s.Devices()...)
		}
		return out, devices
	}
	for _, name := range Profiles() {
		times := []time.Duration{0, 10 * time.Millisecond, 50 * time.Millisecond, 3 * time.Second, 26 * time.Hour}
		a, devicesA := rows(Options{Profile: name, Seed: 1}, times...)
		b, devicesB := rows(Options{Profile: name, Seed: 1}, times...)
		diff := cmp.Diff(devicesA, devicesB)
		testkit.ErrorIf(t, diff != "" || !equalRows(a, b, false), "%s: two nodes of one seed differ:\n%s", name, diff)
		c, devicesC := rows(Options{Profile: name, Seed: 2}, times...)
		testkit.ErrorIf(t, equalRows(a, c, false) || devicesA[0].ID == devicesC[0].ID, "%s: nodes of two seeds are equal", name)
		// A value depends on the time, and a mean also on the time of the previous read, but not on earlier reads.
		last, _ := rows(Options{Profile: name, Seed: 1}, times[3:]...)
		testkit.ErrorIf(t, !equalRows(a[4*len(a)/5:], last[len(last)/2:], true), "%s: values depend on earlier samples", name)
	}
}

// equalRows compares rows. With events, it ignores cells that are NaN in either row, because a reader gets an event once.
func equalRows(a, b [][]float64, events bool) bool {
	return slices.EqualFunc(a, b, func(x, y []float64) bool {
		return slices.EqualFunc(x, y, func(v, w float64) bool {
			return v == w || math.IsNaN(v) && math.IsNaN(w) || events && math.IsNaN(v+w)
		})
	})
}

// TestCoupling checks that a board's readings are consistent at any time, and that energy is the integral of power.
func TestCoupling(t *testing.T) {
	l := collectortest.Gauges(t, "DCGM_FI_DEV_POWER_USAGE_INSTANT", "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
		"DCGM_FI_DEV_FB_TOTAL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_RESERVED", "DCGM_FI_DEV_FB_USED_PERCENT",
		"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")
	b := profiles()[0].board
	for _, shape := range Shapes() {
		clock := newClock()
		w := newWorld(t, Options{Now: clock.now, Spec: &Spec{Loads: []Load{{All(), Shape(shape)}}}})
		n := openNode(t, w, l)
		seen := map[float64]int{}
		const step = 5 * time.Millisecond // divides the step of every curve
		begin, joules := n.read(0, 0)[156], 0.0
		for range 40_000 {
			v := n.read(0, 0)
			joules += v[157] * step.Seconds()
			clock.advance(step)
			watts, mhz, mask := v[157], v[100], v[112]
			seen[mask]++
			busy := n.sources[0].(*source).points[0].load
			switch {
			case v[251]+v[252]+v[253] != v[250]:
				t.Fatalf("%s: memory %v free + %v used + %v reserved is not %v", shape, v[251], v[252], v[253], v[250])
			case math.Abs(v[254]-v[252]/(v[250]-v[253])) > 1e-12:
				t.Fatalf("%s: memory ratio %v of %v MiB", shape, v[254], v[252])
			case busy < idleLoad && (mask != reasonGPUIdle || mhz != b.idleMHz || watts > 1.1*b.idleWatts+1):
				t.Fatalf("%s: idle at %v MHz, %v W, reasons %v", shape, mhz, watts, mask)
			case busy >= 0.93 && (mask != reasonPowerCap || mhz >= b.maxMHz || watts < 0.97*b.limitWatts):
				t.Fatalf("%s: at the limit with %v MHz, %v W, reasons %v", shape, mhz, watts, mask)
			case busy > idleLoad && busy < 0.93 && (mask != 0 || mhz != b.maxMHz):
				t.Fatalf("%s: busy at %v with %v MHz, reasons %v", shape, busy, mhz, mask)
			case watts > b.limitWatts || watts < 0.96*b.idleWatts:
				t.Fatalf("%s: %v W", shape, watts)
			}
		}
		got := (n.read(0, 0)[156] - begin) / 1e3
		testkit.ErrorIf(t, math.Abs(got-joules) > joules/1000, "%s: energy grew by %v J, the sum of power × time is %v J", shape, got, joules)
		want := map[Shape][]float64{Idle: {reasonGPUIdle}, Training: {reasonPowerCap, 0}, Inference: {0}, Bursts: {reasonPowerCap, reasonGPUIdle}}
		for _, mask := range want[Shape(shape)] {
			testkit.ErrorIf(t, seen[mask] == 0, "%s: never saw reasons %v in %v", shape, mask, seen)
		}
	}
}
