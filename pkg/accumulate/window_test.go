package accumulate

import (
	"math/rand/v2"
	"testing"
	"time"
)

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
