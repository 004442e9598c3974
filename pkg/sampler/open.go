package sampler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

func (k *keeper) startOpen(ctx context.Context) {
	k.dirty = false
	k.lastOpen = time.Now()
	k.wishMu.Lock()
	fields, version := k.wish, k.version
	k.wishMu.Unlock()
	k.asked = version
	if k.current.Load() == nil {
		k.problem.CompareAndSwap(nil, &problem{cause: CauseOpening, reason: "being opened"})
	}
	c := k.factory()
	result := make(chan opened, 1) // so that an Open that returns after the end leaves no goroutine
	k.opened = result
	go func() {
		octx, cancel := context.WithTimeout(ctx, k.o.OpenTimeout)
		defer cancel()
		b, err := k.bind(octx, c, fields, version)
		if err != nil {
			err = errors.Join(err, c.Close())
		}
		result <- opened{c, b, version, err}
	}()
}

// bind opens c and makes the workers of its sources, which it does not start.
func (k *keeper) bind(ctx context.Context, c collector.Collector, fields field.List, version uint64) (*binding, error) {
	sources, err := c.Open(ctx, fields)
	if err == nil {
		err = validate(sources)
	}
	if err != nil {
		return nil, err
	}
	b, err := newBinding(c, sources, fields, version, k.o, k.metrics)
	if err == nil {
		b.gone = func() { poke(k.freed) }
	}
	return b, err
}

func (k *keeper) onOpened(ctx context.Context, r opened) {
	k.opened = nil
	if r.err != nil {
		k.metrics.opens.WithLabelValues(k.name, "error").Inc()
		k.fail(r)
		return
	}
	k.metrics.opens.WithLabelValues(k.name, "success").Inc()
	b := r.binding
	if k.released {
		b.discard()
		k.retired = append(k.retired, b)
		return
	}
	old := k.current.Load()
	earlier := k.retired
	if old != nil {
		earlier = append(slices.Clone(k.retired), old)
	}
	k.pending = b
	b.start(ctx, earlier, func(err error) { k.notify(b, err) })
	if old == nil {
		k.switchOver()
		return
	}
	ready := make(chan struct{})
	k.ready = ready
	go func() {
		defer close(ready)
		b.takeOver(ctx, old, k.o.Deadline)
	}()
}

// fail keeps what is in service, remembers why, and tries again later. The
// first failure and every new reason is logged, repeats are only counted.
func (k *keeper) fail(r opened) {
	if k.released {
		return
	}
	p := &problem{cause: causeOfOpen(r.err), reason: r.err.Error()}
	if old := k.problem.Swap(p); old == nil || old.reason != p.reason {
		level := zap.WarnLevel
		if p.cause != CauseError {
			level = zap.InfoLevel // a node without this vendor's GPUs is nothing to worry about
		}
		k.log.Log(level, "collector is not in use, trying again in the background", zap.Error(r.err))
	}
	var answer error
	pause := k.pause
	switch {
	case p.cause == CauseNothing:
		k.retire(nil)                          // it has done what the list asks for
		pause = max(pause, k.o.RescanInterval) // devices that can tell more may come
	case p.cause == CauseOutdated && !k.o.Replaceable:
		k.retire(nil)
		answer = fmt.Errorf("reopen collector %q: %w", k.name, r.err)
	case k.current.Load() != nil:
		answer = fmt.Errorf("reopen collector %q with the new fields (the old ones stay in service): %w", k.name, r.err)
	}
	k.answer(r.version, answer)
	k.retry.Reset(pause)
	k.pause = min(k.pause*2, k.o.RetryMax)
}

// switchOver puts the pending binding into service and retires the one before.
func (k *keeper) switchOver() {
	b := k.pending
	k.pending, k.ready = nil, nil
	old := k.current.Load()
	before := old
	if before == nil {
		before = k.former.Load()
	}
	k.retire(b)
	k.publish()
	if k.problem.Swap(nil) != nil || old == nil {
		k.log.Info("collector is in use", zap.Int("sources", len(b.workers)), zap.Int("devices", b.deviceCount()))
	}
	k.pause = firstRetry
	if before != nil {
		k.missing.forget(b)
		k.missing.remember(before, b, time.Now())
		k.metrics.dropGone(k.name, before, b)
	}
	k.answer(b.version, nil)
	k.wishMu.Lock()
	k.dirty = k.dirty || k.version > b.version
	k.wishMu.Unlock()
}
