package accumulate

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestWindow(t *testing.T) {
	const width = 5 // so the window is 300
	var w window
	f := func(now int64, want uint64) {
		t.Helper()
		if got := w.count(now, width); got != want {
			t.Errorf("count at %d: got %d, want %d", now, got, want)
		}
	}
	f(0, 0)
	w.add(7, 7, width, 1)
	w.add(7, 8, width, 2)
	w.add(100, 120, width, 1) // read late
	f(120, 4)
	f(307, 4)
	f(309, 4)
	f(310, 1) // 7 lies in the slot 5 … 10
	f(400, 1)
	f(405, 0)
	w.add(405, 1000, width, 1) // too old to count
	f(1000, 0)
	w.add(990, 1000, width, 1)
	f(900, 1) // a now before the newest does no harm
	f(1<<60, 0)
	w.add(-20, 1<<60, width, 1)
	f(1<<60, 0)

	w = window{} // before the epoch
	w.add(-12, 3, width, 1)
	w.add(-1, 3, width, 1)
	f(288, 2)
	f(290, 1) // the slot -15 … -10 has left
}

// TestWindowModel compares with a list of all events: each is counted for the
// window, and gone a slot later.
func TestWindowModel(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		width := 1 + random.Int64N(1000)
		span := width * windowSlots
		var w window
		var events []int64
		now := random.Int64N(1e6)
		for range 3000 {
			now += random.Int64N(width * 3)
			if random.IntN(3) == 0 {
				at := now - random.Int64N(span/2)
				events = append(events, at)
				w.add(at, now, width, 1)
			}
			var certain, possible uint64
			for _, e := range events {
				if now-e <= span {
					certain++
				}
				if now-e <= span+width {
					possible++
				}
			}
			if got := w.count(now, width); got < certain || got > possible {
				t.Fatalf("seed %d: count is %d, want %d to %d", seed, got, certain, possible)
			}
		}
	}
}

func TestAxis(t *testing.T) {
	var a axis
	wall := time.Unix(1000, 0)
	a.advance(wall)
	if got := a.position(wall.UnixNano()); got != 0 {
		t.Errorf("position of now: got %d, want 0", got)
	}
	if got := a.position(wall.UnixNano() - 5); got != -5 {
		t.Errorf("position 5 ns ago: got %d, want -5", got)
	}
	if got := a.position(1 << 62); got != 0 {
		t.Errorf("position of a time to come: got %d, want now, 0", got)
	}
	if got, want := a.position(-1<<63), -wall.UnixNano(); got != want {
		t.Errorf("position of nonsense: got %d, want %d", got, want)
	}
	a.advance(wall.Add(time.Minute))
	a.advance(wall) // without a monotonic reading: now does not move
	if got, want := a.position(wall.UnixNano()), int64(time.Minute); got != want {
		t.Errorf("position of now after the clock was set back: got %d, want %d", got, want)
	}
}
