package sampler

import (
	"context"
	"errors"
	"time"

	"warpgauge/pkg/collector"
)

// onEvent reacts to what a sample said: other columns need a new Open, a lost
// device a look at what is there. Neither more often than once a second.
func (k *keeper) onEvent(ctx context.Context, n notice) {
	if errors.Is(n.err, collector.ErrOutdated) {
		k.onOutdated(n.binding, n.err)
		return
	}
	if errors.Is(n.err, collector.ErrColumnsChanged) {
		if k.opened == nil && k.pending == nil {
			k.retry.Reset(max(0, firstRetry-time.Since(k.lastOpen)))
		}
		return
	}
	if time.Since(k.lastScan) >= firstRetry {
		k.startRescan(ctx)
	}
}

func (k *keeper) startRescan(ctx context.Context) {
	b := k.current.Load()
	if b == nil || k.rescan != nil || k.opened != nil || k.pending != nil {
		return
	}
	r, ok := b.collector.(collector.Rescanner)
	if !ok {
		return
	}
	k.lastScan = time.Now()
	result := make(chan rescanned, 1)
	k.rescan = result
	go func() {
		rctx, cancel := context.WithTimeout(ctx, k.o.OpenTimeout)
		defer cancel()
		changed, err := r.Rescan(rctx)
		result <- rescanned{b, changed, err}
	}()
}

func (k *keeper) onRescanned(r rescanned) {
	k.rescan = nil
	if k.released {
		return
	}
	if r.err != nil {
		k.metrics.rescanErrors.WithLabelValues(k.name).Inc()
		if errors.Is(r.err, collector.ErrOutdated) {
			k.onOutdated(r.binding, r.err)
		}
		return
	}
	if r.changed {
		k.retry.Reset(max(0, firstRetry-time.Since(k.lastOpen)))
	}
}
