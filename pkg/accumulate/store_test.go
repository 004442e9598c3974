package accumulate

import (
	"fmt"
	"math"
	"testing"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
)

// tick writes n rows of value v, a second apart, beginning at second from.
func tick(b *board, from, n int, v float64) {
	for i := range n {
		for d := range b.Devices {
			*b.cell(d, cellPower) = v
		}
		b.row(at(float64(from + i)))
	}
}

// TestPercentsOnBounds: 70 × 0.01 is greater than 0.7, but 70 % still belongs in that bucket.
func TestPercentsOnBounds(t *testing.T) {
	bounds := []float64{0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1}
	for i, bound := range bounds {
		b := newBoard(16, "GPU-a")
		fd := &b.Fields.Fields[0]
		fd.Scale, fd.Buckets = 0.01, bounds
		s, sync := newStore()
		tick(b, 0, 1, math.Round(bound*100))
		sync(viewOf(b), at(1))
		h := power(t, s, "GPU-a")
		testkit.ErrorIf(t, h.Counts[i] != 1000, "%v %%: buckets %v, want it in the one up to %v", math.Round(bound*100), h.Counts, bound)
	}
}

func TestHistogramPerColumn(t *testing.T) {
	b := newBoard(16, "GPU-a")
	link := []collector.Label{{Name: "nvlink", Value: "3"}}
	b.Columns[cellXID2] = collector.Column{Field: descPower.ID, Labels: link}
	s, sync := newStore()
	*b.cell(0, cellPower), *b.cell(0, cellXID2) = 10, 20
	b.row(at(0))
	sync(viewOf(b), at(0))
	checkHistogram(t, power(t, s, "GPU-a"), 1, 10)
	if e := find(s, "GPU-a", descPower.Name, "nvlink", "3"); e == nil {
		t.Error("the column with labels has no histogram")
	} else {
		checkHistogram(t, e.Histogram, 1, 20)
	}
}

func TestStampsThatMakeNoSense(t *testing.T) {
	b := newBoard(16, "GPU-a")
	s, sync := newStore()
	row := func(stamp, now int64) {
		*b.cell(0, cellXID) = 48
		*b.cell(0, cellClocks) = float64(now & 1)
		b.Ring.Append(now, []int64{stamp}, b.Row)
	}
	for i, stamp := range []int64{-1 << 63, 1<<63 - 1, -1, 0, 1} {
		row(stamp, stamp)
		row(int64(i), -stamp)
	}
	sync(viewOf(b), at(0))
	next := newBoard(16, "GPU-a")
	tick(next, 0, 2, 100)
	sync(viewOf(next), at(2))
	testkit.Equal(t, "sum after nonsense, the 200 W for a second each of the new ring", 200_000.0, power(t, s, "GPU-a").Sum)
	checkSums(t, power(t, s, "GPU-a"))
}

// TestReloadWithOtherBuckets: the series starts again, the others continue.
func TestReloadWithOtherBuckets(t *testing.T) {
	b := newBoard(16, "GPU-a")
	s, sync := newStore()
	*b.cell(0, cellXID) = 48
	tick(b, 0, 3, 100)
	sync(viewOf(b), at(3))
	next := newBoard(16, "GPU-a")
	next.Fields.Fields[0].Buckets = []float64{1, 2}
	tick(next, 3, 2, 100)
	sync(viewOf(next), at(5))
	checkHistogram(t, power(t, s, "GPU-a"), 2, 200)
	testkit.Equal(t, "total of xid 48", 1.0, value(s, "GPU-a", xidTotal, "xid", "48"))
	sync(viewOf(), at(5))
	sync(viewOf(), at(86406))
	testkit.Equal(t, "states after more than a day without the device", 0, len(s.states))
}

func TestSyncAllocatesNothing(t *testing.T) {
	b := newBoard(64, "GPU-a", "GPU-b")
	v := viewOf(b)
	_, sync := newStore()
	now := 0
	step := func() {
		for d := range b.Devices {
			*b.cell(d, cellPower) = float64(now % 300)
			*b.cell(d, cellClocks) = float64(now % 512)
			*b.cell(d, cellXID) = 79
		}
		b.row(at(float64(now)))
		sync(v, at(float64(now)))
		now++
	}
	for range 10 {
		step()
	}
	testkit.Equal(t, "allocations of a tick and a Sync", 0.0, testing.AllocsPerRun(500, step))
}

// TestStatesAreBounded: devices whose fields have another name in each View keep the states in use. Further states of a
// device are refused.
func TestStatesAreBounded(t *testing.T) {
	s, _ := newStore()
	f := &follow{source: newBoard(2, "a", "b").Source, claims: make([]int, 2)}
	state := func(device int, name string) *int {
		n, _ := claim(s, f, device, key{name, ""}, always, func() *int { return new(int) })
		return n
	}
	first := state(0, "first")
	for i := range 8 {
		s.bindings++
		clear(f.claims)
		testkit.FatalIf(t, state(0, "first") != first, "the state in use was forgotten in View %d", i)
		for j := range 2 * maxStates {
			for device := range 2 {
				got := state(device, fmt.Sprint(i, " ", j))
				testkit.FatalIf(t, got != nil != (j+1-device < maxStates), "state %d of device %d in a View is %v", j+1-device, device, got)
			}
		}
		s.dropUnused()
	}
	testkit.Equal(t, "states, unused and in use", maxUnused+2*maxStates, len(s.states["a"])+len(s.states["b"]))
}
