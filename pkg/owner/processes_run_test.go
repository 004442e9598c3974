package owner

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
)

func TestRunPollsEachSecond(t *testing.T) {
	w := newWorld(t, []string{"GPU-0"})
	synctest.Test(t, func(t *testing.T) {
		polls := 0
		c := NewProcesses(&w.board, func() { polls++ }, zap.NewNop())
		c.locations = newLocations(w.root)
		ctx, cancel := context.WithTimeout(t.Context(), 4500*time.Millisecond)
		defer cancel()
		if err := c.Run(ctx); err != nil || polls != 5 {
			t.Errorf("Run: %v; %d polls in 4.5 s, want 5", err, polls)
		}
	})
}

// TestUsageIsReadWhilePolling is for the race detector.
func TestUsageIsReadWhilePolling(t *testing.T) {
	w := newWorld(t, []string{"GPU-0"})
	w.run(10, time.Hour, inPodA)
	done := make(chan struct{})
	read := make(chan struct{})
	go func() {
		defer close(read)
		for {
			s := w.client.Snapshot()
			for id, use := range s.Devices {
				if id != "GPU-0" || len(use.Users) != 1 || use.Users[0].PodUID != uidA {
					t.Errorf("%s: %+v", id, use)
				}
			}
			select {
			case <-done:
				return
			default:
			}
		}
	}()
	for i := range 200 {
		w.sample(0, 0, 1, sampled(10, float64(i), 1))
		w.look()
	}
	close(done)
	<-read
}
