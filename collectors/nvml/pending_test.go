//go:build linux && cgo

package nvml

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"warpgauge/internal/testkit"
)

// TestPending checks that hanging calls delay askEach once, as long as the driver may attach to further GPUs, or until the
// context ends. askEach does not repeat them until they return.
func TestPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var late atomic.Int64
		start := time.Now()
		p := &pending{patience: 5 * time.Second}
		ended := askEach(t.Context(), p, []int{0, 1, 2, 3}, func(i int) int {
			switch i {
			case 1, 2:
				<-release
			case 3:
				time.Sleep(200 * time.Millisecond)
				p.heard(i)
				time.Sleep(550 * time.Millisecond)
			}
			return i
		}, func(i int) { late.Add(int64(i)) })
		equal(t, map[int]int{0: 0, 3: 3}, ended, "ended")
		took := time.Since(start)
		testkit.ErrorIf(t, took != 1150*time.Millisecond, "took %v, want 1.15s", took)
		again := askEach(t.Context(), p, []int{0, 1}, func(i int) int {
			testkit.ErrorIf(t, i == 1, "asked again during a call")
			return i
		}, nil)
		if equal(t, map[int]int{0: 0}, again, "ended the second time"); !p.has(1) || p.has(0) {
			t.Errorf("calls that hang: %v", p.calls)
		}
		start = time.Now()
		askEach(t.Context(), &pending{patience: 5 * time.Second}, []int{0, 1}, func(i int) int {
			if i == 1 {
				<-release
			}
			return i
		}, nil)
		equal(t, 400*time.Millisecond, time.Since(start), "wait for a GPU that answers nothing")
		start = time.Now()
		ended = askEach(t.Context(), &pending{patience: 5 * time.Second}, []int{0, 1, 2}, func(i int) int {
			if i < 2 {
				time.Sleep(time.Duration(i+1) * time.Second / 2)
				return i
			}
			<-release
			return i
		}, nil)
		equal(t, map[int]int{0: 0, 1: 1}, ended, "ended, one after the other")
		equal(t, 3*time.Second, time.Since(start), "wait for a third GPU")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start = time.Now()
		if askEach(ctx, p, []int{5}, func(i int) int { <-release; return i }, nil); time.Since(start) != time.Second {
			t.Errorf("took %v with a context of 1s", time.Since(start))
		}
		close(release)
		p.all.Wait()
		testkit.ErrorIf(t, late.Load() != 1+2, "late was called for %d, want 1 and 2", late.Load())
	})
}
