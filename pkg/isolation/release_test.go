package isolation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"warpgauge/pkg/eventually"
	"warpgauge/pkg/sampler"
)

// gone reports whether no process of that number is left, not even a zombie.
func gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

func TestReleaseEndsTheChildAndResumeStartsAnother(t *testing.T) {
	v := supervise(t, "counting", Options{})
	for range 3 {
		v.awaitService(t)
		pid := v.state.Load().pid
		begin := time.Now()
		if err := v.Release(t.Context(), "counting"); err != nil {
			t.Fatal(err)
		}
		t.Logf("released after %v", time.Since(begin))
		if !gone(pid) {
			t.Errorf("child %d is still there", pid)
		}
		if n := len(v.board.Load().Sources); n != 0 {
			t.Errorf("%d sources on the board", n)
		}
		st := v.status()
		if st.Up || st.Cause != sampler.CauseReleased || len(st.Devices) != 2 || st.Devices[0].State != sampler.Released || st.Devices[0].LastSample.IsZero() {
			t.Errorf("status %+v, want two released devices", st)
		}
		if err := v.Release(t.Context(), ""); err != nil {
			t.Errorf("again: %v", err)
		}
		if err := v.Reload(t.Context(), list(t, "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE")); err != nil {
			t.Errorf("Reload: %v", err)
		}
		if p := v.state.Load().pid; p != 0 {
			t.Errorf("child %d while released", p)
		}
		if err := v.Resume(""); err != nil {
			t.Fatal(err)
		}
	}
	v.awaitService(t)
	if got := len(v.board.Load().Sources[0].Columns); got != 2 {
		t.Errorf("%d columns, want those of the list that came during the release", got)
	}
	if n := v.value(t, "warpgauge_collector_restarts_total"); n != 0 {
		t.Errorf("%v restarts, want none", n)
	}
}

// TestReleaseKillsAChildThatHangs: the kernel closes what it has open.
func TestReleaseKillsAChildThatHangs(t *testing.T) {
	v := supervise(t, "hang-all", Options{})
	eventually.True(t, "two sources", func() bool { return len(v.board.Load().Sources) == 2 })
	pid := v.state.Load().pid
	if err := v.Release(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if !gone(pid) {
		t.Errorf("child %d is still there", pid)
	}
}

func TestReleaseWhileAChildStarts(t *testing.T) {
	v := supervise(t, "hang-open", Options{})
	eventually.True(t, "a child", func() bool { return v.state.Load().pid != 0 })
	pid := v.state.Load().pid
	if err := v.Release(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if !gone(pid) {
		t.Errorf("child %d is still there", pid)
	}
}

// TestReleaseOfAChildThatDoesNotGo plays an uninterruptible sleep.
func TestReleaseOfAChildThatDoesNotGo(t *testing.T) {
	awake := make(chan struct{})
	v := supervise(t, "counting", Options{
		killGrace: 50 * time.Millisecond,
		sigkill: func(p *os.Process) error {
			select {
			case <-awake:
				return p.Kill()
			default:
				return nil
			}
		},
	})
	v.awaitService(t)
	pid := v.state.Load().pid
	freeze(t, pid)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := v.Release(ctx, "")
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), fmt.Sprintf("child %d has not ended", pid)) {
		t.Errorf("got %v, want the end of the context and child %d", err, pid)
	}
	if err := v.Resume(""); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the child to be abandoned", func() bool { return v.value(t, "warpgauge_collector_abandoned_children") == 1 })
	if p := v.state.Load().pid; p != 0 {
		t.Errorf("child %d beside one that does not go", p)
	}
	close(awake)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	v.awaitService(t)
}

func TestReleaseOfAnotherCollector(t *testing.T) {
	v := supervise(t, "counting", Options{})
	if err := v.Release(t.Context(), "other"); err == nil || !strings.Contains(err.Error(), `"other"`) {
		t.Errorf("Release: %v", err)
	}
	if err := v.Resume("other"); err == nil {
		t.Error("Resume of another collector succeeded")
	}
}

func TestStopDuringARelease(t *testing.T) {
	v := supervise(t, "counting", Options{})
	v.awaitService(t)
	if err := v.Release(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	v.cancel()
}

// TestAnOutdatedChildIsReplacedAtOnce, and its rows stay meanwhile.
func TestAnOutdatedChildIsReplacedAtOnce(t *testing.T) {
	t.Setenv(outdatedMark, filepath.Join(t.TempDir(), "mark"))
	v := supervise(t, "outdated", Options{})
	eventually.True(t, "another child", func() bool {
		if old := v.board.Load(); v.counted(ReasonOutdated) > 0 && len(old.Sources) == 0 {
			t.Fatal("the board is empty")
		}
		return v.counted(ReasonOutdated) == 1 && v.status().Up && v.status().Cause == sampler.CauseNone
	})
	v.awaitService(t)
	eventually.True(t, "good samples", func() bool {
		return v.status().Devices[0].State == sampler.Up && v.status().Devices[1].State == sampler.Up
	})
	if n := v.value(t, "warpgauge_collector_restarts_total"); n != 1 {
		t.Errorf("%v restarts, want the one", n)
	}
	ends := v.logs.FilterMessage("child ended, another is started").All()
	if len(ends) != 1 || ends[0].ContextMap()["cause"] != ReasonOutdated || ends[0].ContextMap()["pause"] != time.Duration(0) {
		t.Errorf("logged %v", ends)
	}
}
