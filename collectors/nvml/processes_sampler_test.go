//go:build linux && cgo

package nvml

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/session"
	"warpgauge/pkg/supervisor"
)

// sampledProcesses runs the collector as the exporter does, with a short tick.
func sampledProcesses(t *testing.T, n *nvmltest.Node) *supervisor.Supervisor {
	t.Helper()
	s := supervisor.New(supervisor.Wanted{}, supervisor.Options{
		Name: ProcessesName, Open: func() collector.Collector { return NewProcesses(at(n)) },
		Session: session.Options{Interval: 20 * time.Millisecond, Deadline: 300 * time.Millisecond, RescanInterval: 100 * time.Millisecond, RingSpan: time.Millisecond},
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s
}

// countsOf is how many processes each device has in its newest row, −1 where the
// library does not say.
func countsOf(t *testing.T, s *supervisor.Supervisor) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, src := range s.Board().Load().Sources {
		starts, err := collector.ProcessBlocks(len(src.Devices), src.Columns)
		if err != nil {
			t.Fatal(err)
		}
		var row ring.Row
		for i, d := range src.Devices {
			if starts[i] >= 0 && src.Ring.Latest(&row) {
				_, out[d.ID] = collector.GetProcesses(nil, row.Cells[starts[i]:][:collector.ProcessWidth])
			}
		}
	}
	return out
}

// awaitProcesses waits until counts and states are these, by the devices' ids.
func awaitProcesses(t *testing.T, what string, s *supervisor.Supervisor, counts map[string]int, states map[string]session.State) {
	t.Helper()
	eventually.OK(t, what, func() error {
		now := map[string]session.State{}
		for _, d := range s.Status().Devices {
			now[d.Device.ID] = d.State
			if d.Cause == session.CauseStarting {
				now[d.Device.ID] = session.LastState + 1
			}
		}
		if got, want := fmt.Sprint(countsOf(t, s), now), fmt.Sprint(counts, states); got != want {
			return fmt.Errorf("got %s, want %s", got, want)
		}
		return nil
	})
}

// TestProcessesThroughTheSampler: what happens to a GPU concerns its own processes
// only, and is over when it is over.
func TestProcessesThroughTheSampler(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 3})
	there := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, there) })
	held := n.Held()
	a, b, c := nvmltest.UUID(0), nvmltest.UUID(1), nvmltest.UUID(2)
	s := sampledProcesses(t, n)
	type counts = map[string]int
	type states = map[string]session.State
	const up = session.Up
	n.SetProcesses(1, nvmltest.Process{PID: 7, Memory: 1})
	n.SetProcesses(2, nvmltest.Process{PID: 7, Memory: 1}, nvmltest.Process{PID: 8, Memory: 1})
	awaitProcesses(t, "running", s, counts{a: 0, b: 1, c: 2}, states{a: up, b: up, c: up})

	let := n.Hang(1, nvmltest.Every)
	awaitProcesses(t, "one hangs", s, counts{a: 0, b: 1, c: 2}, states{a: up, b: session.Stalled, c: up})
	n.SetProcesses(2, nvmltest.Process{PID: 9})
	awaitProcesses(t, "the others keep running", s, counts{a: 0, b: 1, c: 1}, states{a: up, b: session.Stalled, c: up})
	let()
	awaitProcesses(t, "it answers again", s, counts{a: 0, b: 1, c: 1}, states{a: up, b: up, c: up})

	n.Lose(2)
	awaitProcesses(t, "one is lost", s, counts{a: 0, b: 1, c: 1}, states{a: up, b: up, c: session.Lost})
	n.Restore(2)
	awaitProcesses(t, "it is back", s, counts{a: 0, b: 1, c: 1}, states{a: up, b: up, c: up})

	if err := s.Want(t.Context(), func(w *supervisor.Wanted) { w.Released = true }); err != nil {
		t.Fatal(err)
	}
	if open := n.OpenFiles(0); len(open) > 0 || n.Held() != held {
		t.Errorf("released, and open: %v; held: %+v, before: %+v", open, n.Held(), held)
	}
	if err := s.Want(t.Context(), func(w *supervisor.Wanted) { w.Released = false }); err != nil {
		t.Fatal(err)
	}
	awaitProcesses(t, "resumed", s, counts{a: 0, b: 1, c: 1}, states{a: up, b: up, c: up})
}
