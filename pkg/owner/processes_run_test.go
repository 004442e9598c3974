package owner

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/view"
)

func TestRunPollsEachSecond(t *testing.T) {
	files := newWorld(t, []string{"GPU-0"})
	files.run(10, time.Hour, inPodA)
	synctest.Test(t, func(t *testing.T) {
		var changes []time.Duration
		begin := time.Now()
		c := NewProcesses(&files.board, func() { changes = append(changes, time.Since(begin)) }, zap.NewNop())
		c.locations = newLocations(files.root)
		c.locations.uptime = func() time.Duration { return uptimeThere }
		if s := c.Snapshot(); s == nil || s.Version != 0 || len(s.Devices) != 0 {
			t.Errorf("before the first poll: %+v", s)
		}
		row := func(memory float64) {
			collector.PutProcesses(files.rows[0], 1, []collector.Process{sampled(10, memory, 1)})
			files.rings[0].Append(time.Now().UnixNano(), []int64{time.Now().UnixNano()}, files.rows[0])
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		row(1)
		go func() { done <- c.Run(ctx) }()
		time.Sleep(1500 * time.Millisecond)
		row(2)
		time.Sleep(3 * time.Second)
		files.board.Store(&view.View{Version: 9})
		time.Sleep(time.Second)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		want := []time.Duration{0, 2 * time.Second, 5 * time.Second}
		if len(changes) != len(want) {
			t.Fatalf("changes at %v, want at %v", changes, want)
		}
		for i := range want {
			if changes[i] != want[i] {
				t.Errorf("changes at %v, want at %v", changes, want)
			}
		}
		if s := c.Snapshot(); s.Version != 3 || len(s.Devices) != 0 {
			t.Errorf("in the end %+v", s)
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
		var last uint64
		for {
			s := w.client.Snapshot()
			if s.Version < last {
				t.Errorf("version %d after %d", s.Version, last)
			}
			last = s.Version
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
