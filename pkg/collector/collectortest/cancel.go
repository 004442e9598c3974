package collectortest

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/google/go-cmp/cmp"

	"warpgauge/pkg/collector"
)

// checkCancel checks that Open with a cancelled context returns the context's error and no source.
func checkCancel(tb *subtest) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if wantCancelled(ctx, tb) != nil {
		tb.Errorf("open with a cancelled context: got sources and no error, want context.Canceled")
	}
}

// checkCancelMidway cancels the context at each moment at which Open checks it. Open must return the context's error, or
// the same result as without cancellation. Checking only at the end is not enough: a select between a result and the
// context may choose either.
func checkCancelMidway(tb *subtest) {
	first, all := tb.open()
	closeNow(tb, first)
	const most = 1000 // an Open that checks more often polls in a loop
	for looks := int64(1); looks < most; looks += 1 + looks/8 {
		ctx, cancel := context.WithCancel(context.Background())
		f := &fickle{Context: ctx, cancel: cancel}
		f.left.Store(looks)
		sources := wantCancelled(f, tb)
		cancel()
		if sources == nil {
			continue
		}
		if diff := cmp.Diff(shapes(all), shapes(sources)); diff != "" {
			tb.Errorf("open that was cancelled after %d checks of its context returned neither the error nor everything (-uncancelled +cancelled):\n%s", looks, diff)
		}
		if f.left.Load() > 0 {
			return // Open did not check again
		}
	}
}

// wantCancelled opens with ctx and returns the sources, or nil if Open returned the context's error.
func wantCancelled(ctx context.Context, tb *subtest) []collector.Source {
	tb.Helper()
	c := tb.rig.Factory()
	sources, err := c.Open(ctx, tb.h.Fields)
	if err != nil && !errors.Is(err, context.Canceled) {
		tb.Errorf("open with a cancelled context: got error %v, want context.Canceled", err)
	}
	if err != nil && len(sources) > 0 {
		tb.Errorf("open with a cancelled context: got %d sources and the error %v", len(sources), err)
	}
	if err := c.Close(); err != nil {
		tb.Errorf("close after a cancelled open: %v", err)
	}
	if err != nil {
		return nil
	}
	return sources
}

// fickle is a context that is cancelled after a number of checks.
type fickle struct {
	context.Context //nolint:containedctx // it is one
	cancel          context.CancelFunc
	left            atomic.Int64
}

func (f *fickle) look() {
	if f.left.Add(-1) <= 0 {
		f.cancel()
	}
}

func (f *fickle) Done() <-chan struct{} {
	f.look()
	return f.Context.Done()
}

func (f *fickle) Err() error {
	f.look()
	return f.Context.Err()
}

// shape holds the devices and columns of a source after Open.
type shape struct {
	Devices []collector.Device
	Columns []collector.Column
}

func shapes(sources []collector.Source) []shape {
	out := make([]shape, len(sources))
	for i, s := range sources {
		out[i] = shape{s.Devices(), s.Columns()}
	}
	return out
}
