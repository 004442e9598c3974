package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
)

// stage is a part of the exporter that runs until its context ends.
type stage struct {
	name  string
	run   func(context.Context) error
	grace time.Duration // how long its end is waited for
}

// shortGrace is for stages that wait for nothing when they end. It is there for
// machines that are too busy to let them.
const shortGrace = 2 * time.Second

type running struct {
	stage
	cancel context.CancelFunc
	done   chan struct{}
	err    error // after done
}

// runStages starts the stages in the order of the data flow and, when ctx ends
// or a stage ends by itself, stops them one after the other in reverse order. A
// stage that does not end within its grace is abandoned: a library call that
// hangs must not keep the process. The result is the error of the stage that
// ended by itself; a stage may not do that while it is needed.
func runStages(ctx context.Context, log *zap.Logger, stages ...stage) error {
	base := context.WithoutCancel(ctx)
	ended := make(chan *running, len(stages))
	started := make([]*running, len(stages))
	for i, s := range stages {
		sctx, cancel := context.WithCancel(base)
		r := &running{stage: s, cancel: cancel, done: make(chan struct{})}
		started[i] = r
		defer cancel()
		go func() {
			r.err = r.run(sctx)
			close(r.done)
			ended <- r
		}()
	}

	var early *running
	select {
	case <-ctx.Done():
	case early = <-ended:
	}
	for i := len(started) - 1; i >= 0; i-- {
		if r := started[i]; r != early {
			r.stop(log)
		}
	}
	switch {
	case early == nil:
		return nil
	case early.err == nil:
		return fmt.Errorf("%s ended without being asked to", early.name)
	}
	return early.err
}

// stop ends the stage and waits for it.
func (r *running) stop(log *zap.Logger) {
	r.cancel()
	timer := time.NewTimer(r.grace)
	defer timer.Stop()
	select {
	case <-r.done:
		if r.err != nil && !errors.Is(r.err, context.Canceled) {
			log.Warn("stop "+r.name, zap.Error(r.err))
		}
	case <-timer.C:
		log.Warn("abandoning "+r.name+", which does not end", zap.Duration("waited", r.grace))
	}
}
