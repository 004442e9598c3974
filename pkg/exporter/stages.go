package exporter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
)

// stopWithin is how long all stages together may take to end, as docs/limits.md
// says: that of the server (2.3 s), of the sampler (1.9 s) and of 16 short ones.
const stopWithin = 5 * time.Second

// ShortGrace is for stages that wait for nothing when they end. What others leave of
// stopWithin is theirs as well, on machines that are too busy to let them end.
const ShortGrace = 50 * time.Millisecond

type running struct {
	Stage
	cancel context.CancelFunc
	done   chan struct{}
	err    error // after done
}

// RunStages starts the stages in the order of the data flow and, when ctx ends
// or a stage ends by itself, stops them one after the other in reverse order. A
// Stage that does not end within its grace, nor in the time that those after it have
// left of stopWithin, is abandoned: a library call that hangs must not keep the
// process. The result is the error of the stage that
// ended by itself; a stage may not do that while it is needed.
func RunStages(ctx context.Context, log *zap.Logger, stages ...Stage) error {
	base := context.WithoutCancel(ctx)
	ended := make(chan *running, len(stages))
	started := make([]*running, len(stages))
	for i, s := range stages {
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
	for _, s := range stages {
		reserved += s.Grace
	}
	for i := len(started) - 1; i >= 0; i-- {
		r := started[i]
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
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-r.done:
		if r.err != nil && !errors.Is(r.err, context.Canceled) {
			log.Warn("stop "+r.Name, zap.Error(r.err))
		}
	case <-timer.C:
		log.Warn("abandoning "+r.Name+", which does not end", zap.Duration("waited", within))
	}
}
