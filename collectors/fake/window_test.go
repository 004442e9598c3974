package fake

import (
	"cmp"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"warpgauge/pkg/field"
)

// burstyNode is a node of one board that is busy for so long in each second, at a random
// time in it.
func burstyNode(t *testing.T, profile string, burst time.Duration, clock *fixedClock, l field.List) *node {
	t.Helper()
	r := rand.New(rand.NewPCG(5, 6))
	loads := make([]int64, 60_000)
	for second := range 60 {
		begin := second*1000 + r.IntN(1000-int(burst.Milliseconds()))
		for i := range burst.Milliseconds() {
			loads[begin+int(i)] = capAt // all of the power range
		}
	}
	curves := NewCurves(0)
	curves.byShape[Bursts] = newCurve(time.Millisecond, loads)
	w := newWorld(t, Options{Profile: profile, Devices: 1, Now: clock.now, Curves: curves, Spec: &Spec{Loads: []Load{{All(), Bursts}}}})
	return openNode(t, w, l)
}

// TestWindows wants values averaged as drivers do: a burst of 50 ms is all of a momentary power, a third of a utilisation
// over 1/6 s and a twentieth of a power over 1 s.
func TestWindows(t *testing.T) {
	f := func(profile string, peaks map[field.ID]float64) {
		t.Helper()
		clock := newClock()
		n := burstyNode(t, profile, 50*time.Millisecond, clock,
			list(t, "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_POWER_USAGE_INSTANT", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"))
		const steps = 6000
		idle := n.world.newGPU(0, 1).idleWatts
		zero, one := map[field.ID]float64{155: idle, 157: idle}, map[field.ID]float64{203: capAt / 10.0, 1001: capAt / 1000.0}
		sum, peak := map[field.ID]float64{}, map[field.ID]float64{}
		for range steps {
			clock.advance(10 * time.Millisecond)
			for id, v := range n.read(0, 0) {
				share := (v - zero[id]) / (cmp.Or(one[id], n.world.profile.board.limitWatts) - zero[id]) // of full load
				sum[id], peak[id] = sum[id]+share, max(peak[id], share)
			}
		}
		for id, want := range peaks {
			if mean := sum[id] / steps; math.Abs(mean-0.05) > 0.005 || math.Abs(peak[id]-want) > 0.06 {
				t.Errorf("%s: field %d has a mean of %v and a peak of %v of full load, want 0.05 and %v", profile, id, mean, peak[id], want)
			}
		}
	}
	// Two bursts can fall into one second.
	f("dgx-h100", map[field.ID]float64{203: 0.3, 155: 0.1, 157: 1, 1001: 0.5})
	f("rtx4090", map[field.ID]float64{203: 0.3, 155: 0.1, 157: 1})
	f("mi300x", map[field.ID]float64{155: 0.5, 157: 1, 1001: 0.5})
	for capability, want := range map[[2]int]bool{{7, 0}: false, {8, 0}: false, {8, 6}: true, {9, 0}: true, {12, 0}: true} {
		if got := (&gpu{board: &board{capability: capability}}).averagesPower(); got != want {
			t.Errorf("compute capability %v: power averaged %v, want %v", capability, got, want)
		}
	}
}

// TestBufferedSamplesAreReadOnce: whatever the ticks, the blocks stand for the time that
// has passed, and an overflow is a gap.
func TestBufferedSamplesAreReadOnce(t *testing.T) {
	l := list(t, "DCGM_FI_DEV_POWER_USAGE")
	l.Fields[0].Type = field.Histogram
	clock := newClock()
	n := burstyNode(t, "dgx-h100", 50*time.Millisecond, clock, l)
	total := func() (ms float64) {
		row, err := sampleRow(n.sources[0])
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range n.sources[0].Columns() {
			if c.Buffer > 0 && c.Buffer%2 == 0 && row[i] > 0 {
				ms += row[i]
			}
		}
		return ms
	}
	_ = total()
	r := rand.New(rand.NewPCG(7, 8))
	var passed, counted float64
	for range 500 {
		d := time.Duration(r.Int64N(int64(2 * time.Second)))
		clock.advance(d)
		passed += float64(d.Microseconds()) / 1000
		counted += total()
	}
	if math.Abs(passed-counted) > 40 {
		t.Errorf("samples stand for %v ms of %v", counted, passed)
	}
	clock.advance(time.Minute)
	if got := total(); got > bufferedPower*20 || got < (bufferedPower-2)*20 {
		t.Errorf("after an overflow: %v ms, want those of %d samples", got, bufferedPower)
	}
	if got := total(); got != 0 {
		t.Errorf("%v ms were read twice", got)
	}
}
