package fake

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"warpgauge/pkg/accumulate"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/view"
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

// quantile is what histogram_quantile makes of classic buckets.
func quantile(h *accumulate.Histogram, q float64) float64 {
	rank, below := q*float64(h.Count), 0.0
	for i, bound := range h.Bounds {
		n := float64(h.Counts[i])
		if below+n < rank || n == 0 {
			below += n
			continue
		}
		if i == 0 {
			return bound
		}
		return h.Bounds[i-1] + (bound-h.Bounds[i-1])*(rank-below)/n
	}
	return h.Bounds[len(h.Bounds)-1]
}

// histograms samples a minute and returns the histogram of each field of the list, made
// of the drivers' buffers or of the readings at each tick.
func histograms(t *testing.T, burst, tick time.Duration, l field.List, buffers bool) map[field.ID]*accumulate.Histogram {
	t.Helper()
	clock := newClock()
	n := burstyNode(t, "dgx-h100", burst, clock, l)
	src := n.sources[0]
	v := &view.Source{Fields: l, Devices: src.Devices()[:1], Interval: tick}
	for _, c := range src.Columns() {
		if c.Buffer > 0 && !buffers {
			c.Field, c.Buffer = 60009, 0
		}
		v.Columns = append(v.Columns, c)
	}
	v.Ring = ring.Make(16, 1, len(v.Columns))
	board := &view.View{Sources: []*view.Source{v}}
	s := accumulate.New(accumulate.Options{})
	clock.advance(37 * time.Millisecond)
	for i := range int(time.Minute / tick) {
		clock.advance(tick)
		row, err := sampleRow(src)
		if err != nil {
			t.Fatal(err)
		}
		v.Ring.Append(clock.t.UnixNano(), []int64{clock.t.UnixNano()}, row)
		if i%10 == 0 {
			s.Sync(board, clock.t)
		}
	}
	s.Sync(board, clock.t)
	out := map[field.ID]*accumulate.Histogram{}
	for _, e := range s.Series() {
		out[e.Field.Desc.ID] = e.Histogram
	}
	return out
}

// TestBurstsInHistograms measures what histograms of a minute say of bursts, against what
// was. The table is in docs/load.md.
func TestBurstsInHistograms(t *testing.T) {
	l := list(t, "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_POWER_USAGE_INSTANT", "DCGM_FI_PROF_GR_ENGINE_ACTIVE")
	idle := newWorld(t, Options{Devices: 1}).newGPU(0, 1).idleWatts
	low, high := map[field.ID]float64{155: idle, 157: idle}, map[field.ID]float64{203: 100, 155: 700, 157: 700, 1001: 1}
	for i := range l.Fields {
		f := &l.Fields[i]
		f.Type = field.Histogram
		for step := range 51 { // of 2 % each
			f.Buckets = append(f.Buckets, high[f.Desc.ID]*float64(step)/50)
		}
	}
	high[203], high[1001] = capAt/10.0, capAt/1000.0 // a burst is not all of these
	columns := []struct {
		id      field.ID
		buffers bool
	}{{203, false}, {203, true}, {155, false}, {155, true}, {157, false}, {1001, false}}
	var rows strings.Builder
	for _, tick := range []time.Duration{100 * time.Millisecond, time.Second} {
		for _, burst := range []time.Duration{20 * time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond} {
			by := map[bool]map[field.ID]*accumulate.Histogram{
				false: histograms(t, burst, tick, l, false), true: histograms(t, burst, tick, l, true),
			}
			fmt.Fprintf(&rows, "| %v | %v |", tick, burst)
			for _, c := range columns {
				h := by[c.buffers][c.id]
				share := func(v float64) float64 { return (v - low[c.id]) / (high[c.id] - low[c.id]) }
				truth := burst.Seconds()
				wrong := (share(h.Sum/float64(h.Count)) - truth) / truth
				if c.buffers && math.Abs(wrong) > 0.06 || c.id == 1001 && math.Abs(wrong) > 0.03 {
					t.Errorf("tick %v, burst %v, field %d: the mean is wrong by %v", tick, burst, c.id, wrong)
				}
				p99 := min(math.Abs(100*share(quantile(h, 0.99))), 100)
				fmt.Fprintf(&rows, " %s %%, %.0f %% |", signed(100*wrong), p99)
			}
			rows.WriteString("\n")
		}
	}
	text, err := os.ReadFile("../../docs/load.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), rows.String()) {
		t.Errorf("docs/load.md has another table; measured:\n%s", rows.String())
	}
}

// signed is a whole number with its sign, 0 without.
func signed(v float64) string {
	if v = math.Round(v); v == 0 {
		return "0"
	}
	return fmt.Sprintf("%+.0f", v)
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
