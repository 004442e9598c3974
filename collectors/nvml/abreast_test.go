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

func TestAbreast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ran atomic.Int64
		start := time.Now()
		ended := abreast(t.Context(), 5*time.Second, 8, func(i int) {
			time.Sleep(time.Duration(i) * time.Second) // one after the other, as a driver attaches
			ran.Add(1)
		}, func(i int) { t.Errorf("%d is late", i) })
		for i, ok := range ended {
			if !ok {
				t.Errorf("%d did not end", i)
			}
		}
		if took := time.Since(start); took != 7*time.Second || ran.Load() != 8 {
			t.Errorf("took %v for %d calls, want 7s for 8", took, ran.Load())
		}
	})
}

// TestAbreastHangs: those that hang cost the patience after the last answer, once.
func TestAbreastHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var late atomic.Int64
		start := time.Now()
		ended := abreast(t.Context(), 5*time.Second, 4, func(i int) {
			switch i {
			case 1, 2:
				<-release
			case 3:
				time.Sleep(time.Second)
			}
		}, func(i int) { late.Add(int64(i)) })
		if diff := cmp.Diff([]bool{true, false, false, true}, ended); diff != "" {
			t.Errorf("ended (-want +got):\n%s", diff)
		}
		if took := time.Since(start); took != 6*time.Second {
			t.Errorf("took %v, want 6s", took)
		}
		close(release)
		synctest.Wait()
		if late.Load() != 1+2 {
			t.Errorf("late told of %d, want 1 and 2", late.Load())
		}
	})
}

func TestAbreastHeedsItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		release := make(chan struct{})
		defer close(release)
		start := time.Now()
		ended := abreast(ctx, time.Minute, 1, func(int) { <-release }, nil)
		if took := time.Since(start); ended[0] || took != time.Second {
			t.Errorf("ended %v after %v, want false after 1s", ended, took)
		}
	})
}
