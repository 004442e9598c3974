package sampler

import (
	"context"
	"errors"
	"time"

	"warpgauge/pkg/collector"
)

func (k *keeper) onEvent(ctx context.Context, err error) {
	if errors.Is(err, collector.ErrColumnsChanged) {
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
		result <- rescanned{changed, err}
	}()
}

func (k *keeper) onRescanned(r rescanned) {
	k.rescan = nil
	if r.err != nil {
		k.metrics.rescanErrors.WithLabelValues(k.name).Inc()
		return
	}
	if r.changed {
		k.retry.Reset(max(0, firstRetry-time.Since(k.lastOpen)))
	}
}
