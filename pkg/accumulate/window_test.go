package accumulate

import (
	"math/rand/v2"
	"testing"

	"warpgauge/internal/testkit"
)

// TestWindowModel compares with a list of all events: each counts for the window, and is gone one slot later.
func TestWindowModel(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		width := 1 + random.Int64N(1000)
		span := width * windowSlots
		var w window
		var events []int64
		now := span + random.Int64N(1e6)
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
			got := w.count(now, width)
			testkit.FatalIf(t, got < certain || got > possible, "seed %d: count is %d, want %d to %d", seed, got, certain, possible)
		}
	}
}
