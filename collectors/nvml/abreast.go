//go:build linux && cgo

package nvml

import (
	"context"
	"sync/atomic"
	"time"
)

// What has become of one of the calls of abreast.
const (
	callRuns int32 = iota
	callEnded
	callAbandoned
)

// abreast calls f(0) to f(n−1), each on a goroutine of its own, so that a GPU
// which hangs delays no other. It returns when all have ended, when ctx has, or
// when none has ended for as long as patience: where the driver attaches to GPUs
// one after the other, the last of them may wait long and still be well.
//
// It reports which have ended; what these have written can be read then. The
// others are abandoned: late, if not nil, is called with the number of each when
// it ends after all, on its goroutine.
func abreast(ctx context.Context, patience time.Duration, n int, f, late func(i int)) (ended []bool) {
	states := make([]atomic.Int32, n)
	done := make(chan struct{}, n)
	for i := range n {
		go func() {
			f(i)
			if states[i].CompareAndSwap(callRuns, callEnded) {
				done <- struct{}{}
			} else if late != nil {
				late(i)
			}
		}()
	}
	await(ctx, patience, n, done)
	ended = make([]bool, n)
	for i := range n {
		ended[i] = !states[i].CompareAndSwap(callRuns, callAbandoned)
	}
	return ended
}

func await(ctx context.Context, patience time.Duration, n int, done <-chan struct{}) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for range n {
		select {
		case <-done:
			timer.Reset(patience)
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}
