package main

import (
	"context"
	"time"

	"warpgauge/pkg/sampler"
)

// settlePoll is how often a one-shot command looks whether it has what it needs.
const settlePoll = 5 * time.Millisecond

// settled says whether every collector has been opened or has told why not, and
// every device has been sampled or has told why not.
func settled(all []sampler.CollectorStatus) bool {
	for _, c := range all {
		if !c.Up && c.Cause == sampler.CauseOpening {
			return false
		}
		for _, d := range c.Devices {
			if d.Cause == sampler.CauseStarting {
				return false
			}
		}
	}
	return true
}

// sampledAfter says whether every device that is up was sampled after t.
func sampledAfter(t time.Time) func([]sampler.CollectorStatus) bool {
	return func(all []sampler.CollectorStatus) bool {
		for _, c := range all {
			for _, d := range c.Devices {
				if d.State == sampler.Up && !d.LastSample.After(t) {
					return false
				}
			}
		}
		return true
	}
}

// await looks at the sampler until done or the end of ctx, and returns what it
// saw last.
func await(ctx context.Context, s *engine, done func([]sampler.CollectorStatus) bool) []sampler.CollectorStatus {
	tick := time.NewTicker(settlePoll)
	defer tick.Stop()
	for {
		all := s.Status()
		if done(all) {
			return all
		}
		select {
		case <-ctx.Done():
			return all
		case <-tick.C:
		}
	}
}

// sampleOnce runs the sampler, and what says who uses devices, until both are
// settled and then until f returns. It waits for library calls no longer than the
// exporter does at its end.
func sampleOnce(ctx context.Context, s *engine, o *owners, timeout time.Duration, f func(ctx context.Context, all []sampler.CollectorStatus) error) error {
	rctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Run(rctx) // what it had to abandon ends with the process
	}()
	defer func() { cancel(); <-done }()
	defer o.start(ctx)()
	wctx, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	all := await(wctx, s, settled)
	if s.speaker != nil {
		s.speaker.Settle() // on whoever has values by now
	}
	o.settle(wctx)
	return f(wctx, all)
}
