package accumulate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/field"
)

// world simulates the sources of a device whose value changes each second. There are one or two sources; the
// View changes between two. world keeps a plain account of the events.
type world struct {
	*rand.Rand
	rings  []*board // with a writer: one, or two of two collectors
	listed *board   // the one in the current View, or nil

	want   prometheus.Histogram // of seconds
	last   int                  // second of the last sample
	xids   map[float64]float64
	onsets [field.ClockReasons]float64
	mask   uint64
}

// second appends the same instant to every open ring.
func (w *world) second(now int) {
	power := float64(w.IntN(400))
	mask := w.mask
	if w.IntN(5) == 0 {
		mask = w.Uint64N(1 << field.ClockReasons)
	}
	failed, blank, xid := w.IntN(10) == 0, w.IntN(20) == 0, nan
	if w.IntN(8) == 0 {
		xid = float64(1 + w.IntN(100))
	}
	for _, b := range w.rings {
		*b.cell(0, cellPower), *b.cell(0, cellClocks), *b.cell(0, cellXID) = power, float64(mask), xid
		if blank {
			*b.cell(0, cellPower), *b.cell(0, cellClocks) = nan, nan
		}
		if failed {
			b.row(at(float64(now)), 0)
		} else {
			b.row(at(float64(now)))
		}
	}
	if len(w.rings) > 0 {
		w.account(now, power, mask, xid, failed, blank)
	}
}

func (w *world) account(now int, power float64, mask uint64, xid float64, failed, blank bool) {
	if !math.IsNaN(xid) {
		w.xids[xid]++
	}
	if failed {
		return
	}
	since := now - w.last
	if since > 3 {
		since = 1 // too long to be filled
	}
	w.last = now
	if blank {
		return
	}
	for range since {
		w.want.Observe(power)
	}
	for i := range w.onsets {
		if mask&^w.mask>>i&1 != 0 {
			w.onsets[i]++
		}
	}
	w.mask = mask
}

// TestModel: Sync counts every instant exactly once, after any sequence of reloads, restarts, absences and failures.
func TestModel(t *testing.T) {
	for seed := range uint64(40) {
		w := &world{Rand: rand.New(rand.NewPCG(seed, 7)), xids: map[float64]float64{}, last: -10}
		w.want = peer(newHistogram(&testFields().Fields[0]))
		s, read := newStore()
		v := viewOf()
		var before *Histogram
		sync := func(now int) {
			read(v, at(float64(now)))
			if e := find(s, "GPU-a", descPower.Name); e != nil {
				checkSums(t, e.Histogram)
				if before != nil {
					checkGrown(t, before, e.Histogram)
				}
				before = cloneHistogram(e.Histogram)
			}
		}
		now := 0
		publish := func(of *board, others ...*board) {
			v = viewOf(append(others, of)...)
			w.listed = of
			if w.IntN(2) == 0 {
				w.second(now) // rows between the View and the Sync that sees it
				now++
			}
			sync(now)
		}
		for range 600 {
			now++
			switch n := len(w.rings); w.IntN(20) {
			case 0: // the second collector begins
				if n < 2 {
					w.rings = append(w.rings, newBoard(1024, "GPU-a"))
				}
			case 1: // it takes over, and the first ends or stands by
				if n == 2 && w.listed == w.rings[0] {
					publish(w.rings[1])
					if w.IntN(2) == 0 {
						w.rings = w.rings[1:]
					} else {
						w.rings[0], w.rings[1] = w.rings[1], w.rings[0]
					}
				}
			case 2: // a new View because of another device
				if n > 0 {
					publish(w.rings[0], newBoard(2, "GPU-other"))
				}
			case 3: // lost: the ring ends, then a View without it
				if n == 1 && w.listed == w.rings[0] {
					w.rings, w.listed, v = nil, nil, viewOf()
				}
			}
			w.second(now)
			if w.IntN(6) == 0 {
				sync(now)
			}
		}
		if len(w.rings) == 0 {
			w.rings = append(w.rings, newBoard(1024, "GPU-a"))
		}
		now++
		publish(w.rings[0])
		w.second(now)
		sync(now)

		diff := cmp.Diff(plainOfPeer(t, w.want), inSeconds(plainOf(power(t, s, "GPU-a"))))
		testkit.FatalIf(t, diff != "", "seed %d: what happened (-) and what was counted (+) differ:\n%s", seed, diff)
		w.check(t, seed, s)
	}
}

func inSeconds(p plain) plain {
	p.Count, p.Zero, p.Sum = p.Count/1000, p.Zero/1000, p.Sum/1000
	for i := range p.Classic {
		p.Classic[i] /= 1000
	}
	for i := range p.Native {
		p.Native[i] /= 1000
	}
	return p
}

func (w *world) check(t *testing.T, seed uint64, s *Store) {
	t.Helper()
	got := map[float64]float64{}
	for _, c := range s.follows[len(s.follows)-1].xids[0].codes {
		if c.total != 0 {
			got[float64(c.code)] = c.total
		}
	}
	var want, sum float64
	for code, n := range w.xids {
		want += n
		testkit.AtMost(t, fmt.Sprintf("seed %d: total of xid %v", seed, code), n, got[code])
	}
	for _, n := range got {
		sum += n
	}
	testkit.Equal(t, fmt.Sprintf("seed %d: sum of the totals of XIDs", seed), want, sum)
	for i := range field.ClockReasons {
		reason, _ := field.ClockReason(i)
		testkit.Equal(t, fmt.Sprintf("seed %d: onsets of %s", seed, reason), w.onsets[i], value(s, "GPU-a", clockTotal, "clock_event", reason))
	}
}

func checkGrown(t *testing.T, before, after *Histogram) {
	t.Helper()
	if after.Count < before.Count || after.Sum < before.Sum || after.ZeroCount < before.ZeroCount {
		t.Fatalf("histogram fell from count %d, sum %v to %d, %v", before.Count, before.Sum, after.Count, after.Sum)
	}
	for i := range before.Counts {
		testkit.FatalIf(t, after.Counts[i] < before.Counts[i], "classic bucket %d fell", i)
	}
	for i := range before.Positive {
		testkit.FatalIf(t, after.Positive[i] < before.Positive[i], "native bucket %d fell", i)
	}
}

func cloneHistogram(h *Histogram) *Histogram {
	c := *h
	c.Counts = append([]uint64(nil), h.Counts...)
	c.Positive = append([]uint64(nil), h.Positive...)
	return &c
}
