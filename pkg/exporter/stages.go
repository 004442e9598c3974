package exporter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
)

// stopWithin is how long all stages together may take to end (docs/limits.md): the server 2.3 s, the sampler
// 1.9 s, and 16 short ones.
const stopWithin = 5 * time.Second

// ShortGrace is for stages that end without waiting. On busy machines they may also use the rest of stopWithin.
const ShortGrace = 50 * time.Millisecond

type running struct {
	Stage
	cancel context.CancelFunc
	done   chan struct{}
	err    error // after done
}

// RunStages starts the stages in the order of the data flow. When ctx ends or a stage ends by itself, it
// stops them one after the other in reverse order. It abandons a Stage that exceeds its grace and the time
// that later stages have left of stopWithin, because a hanging library call must not keep the process. It
// returns the error of the stage that ended by itself; a stage may not do that while it is needed.
func RunStages(ctx context.Context, log *zap.Logger, stages ...Stage) error {
	base := context.WithoutCancel(ctx)
	ended := make(chan *running, len(stages))
	started := make([]*running, len(stages))
	for i, s := range stages {
		s.Grace = cmp.Or(s.Grace, ShortGrace)
		sctx, cancel := context.WithCancel(base)
		r := &running{Stage: s, cancel: cancel, done: make(chan struct{})}
		started[i] = r
		defer cancel()
		go func() {
			r.err = r.Run(sctx)
			close(r.done)
			ended <- r
		}()
	}

	var early *running
	select {
	case <-ctx.Done():
	case early = <-ended:
	}
	end, reserved := time.Now().Add(stopWithin), time.Duration(0)
	for _, r := range started {
		reserved += r.Grace
	}
	for _, r := range slices.Backward(started) {
		if reserved -= r.Grace; r != early {
			r.stop(log, max(r.Grace, time.Until(end)-reserved))
		}
	}
	switch {
	case early == nil:
		return nil
	case early.err == nil:
		return fmt.Errorf("%s ended without being asked to", early.Name)
	}
	return early.err
}

// stop ends the stage and waits for it.
func (r *running) stop(log *zap.Logger, within time.Duration) {
	r.cancel()
	select {
	case <-r.done:
		if r.err != nil && !errors.Is(r.err, context.Canceled) {
			log.Warn("stop "+r.Name, zap.Error(r.err))
		}
	case <-time.After(within):
		log.Warn("abandoning "+r.Name+", which does not end", zap.Duration("waited", within))
	}
}
