//go:build linux && cgo

package nvml

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		ended := askEach(t.Context(), &pending{patience: 5 * time.Second}, []int{0, 1, 2, 3, 4, 5, 6, 7}, func(i int) int {
			time.Sleep(time.Duration(i) * time.Second) // one after the other, as a driver attaches
			return i
		}, func(i int) { t.Errorf("%d is late", i) })
		if took := time.Since(start); took != 7*time.Second || len(ended) != 8 || ended[7] != 7 {
			t.Errorf("took %v for %v, want 7s for 8 calls", took, ended)
		}
	})
}

// TestPendingHangs: those that hang cost the patience after the last answer, once.
func TestPendingHangs(t *testing.T) {
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
				time.Sleep(time.Second)
			}
			return i
		}, func(i int) { late.Add(int64(i)) })
		equal(t, map[int]int{0: 0, 3: 3}, ended, "ended")
		if took := time.Since(start); took != 6*time.Second {
			t.Errorf("took %v, want 6s", took)
		}
		again := askEach(t.Context(), p, []int{0, 1}, func(i int) int {
			if i == 1 {
				t.Error("asked again during a call")
			}
			return i
		}, nil)
		if diff := cmp.Diff(map[int]int{0: 0}, again); diff != "" || !p.has(1) || p.has(0) {
			t.Errorf("ended the second time (-want +got):\n%s", diff)
		}
		close(release)
		p.wait()
		if late.Load() != 1+2 {
			t.Errorf("late was called for %d, want 1 and 2", late.Load())
		}
	})
}

func TestPendingEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		release := make(chan struct{})
		defer close(release)
		start := time.Now()
		ended := askEach(ctx, &pending{patience: time.Minute}, []int{0}, func(int) bool { <-release; return true }, nil)
		if took := time.Since(start); ended[0] || took != time.Second {
			t.Errorf("ended %v after %v, want false after 1s", ended, took)
		}
	})
}
