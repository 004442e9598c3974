package isolation

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"warpgauge/pkg/eventually"
	"warpgauge/pkg/sampler"
)

func (v *supervised) awaitService(t *testing.T) {
	t.Helper()
	eventually.True(t, "two sources with rows", func() bool {
		return len(v.rows()) == 2 && !slices.Contains(v.rows(), 0) && v.status().Up
	})
}

func TestRowsStatesLogsAndCountsComeThroughTheWall(t *testing.T) {
	v := supervise(t, "lost-one", Options{})
	v.awaitService(t)
	eventually.True(t, "the states", func() bool {
		st := v.status()
		return len(st.Devices) == 2 && st.Devices[0].State == sampler.Up && st.Devices[1].State == sampler.Lost
	})
	if st := v.status().Devices[0]; st.Device.ID != "dev0" || st.LastSample.IsZero() {
		t.Errorf("device 0 is %+v, want dev0 with the time of its last sample", st)
	}
	row := latest(t, v.board.Load().Sources[0].Ring)
	if len(row.Cells) != 1 || row.Cells[0] < 1 || row.Stamps[0] == 0 {
		t.Errorf("a row is %+v, want a count and a stamp", row)
	}
	eventually.True(t, "the child's log", func() bool { return v.logs.FilterMessage("opened").Len() == 1 })
	fields := v.logs.FilterMessage("opened").All()[0].ContextMap()
	if fields["fields"] != int64(1) || fields["took"] != "1s" || fields["collector"] != "counting" {
		t.Errorf("log fields are %v", fields)
	}
	eventually.True(t, "the child's counts", func() bool { return v.value(t, "warpgauge_collector_opens_total") >= 1 })
	// Counts are told from time to time, so the first telling may be older than the first sample.
	eventually.True(t, "samples in the histogram", func() bool { return v.value(t, "warpgauge_sample_duration_seconds") >= 1 })
}

// value sums a family: counters, gauges, and counts of histograms.
func (v *supervised) value(t *testing.T, name string) (sum float64) {
	t.Helper()
	families, err := v.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			if f.GetType() == dto.MetricType_HISTOGRAM {
				sum += float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

func TestAKilledChildIsReplacedAndItsRowsStay(t *testing.T) {
	v := supervise(t, "counting", Options{})
	v.awaitService(t)
	var counted float64
	for n := range 3 {
		eventually.True(t, "counts", func() bool { return v.value(t, "warpgauge_sample_duration_seconds") > counted })
		counted = v.value(t, "warpgauge_sample_duration_seconds")
		old := v.board.Load()
		pid := v.state.Load().pid
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually.True(t, "another child", func() bool {
			if now := v.board.Load(); now != old {
				if !slices.Equal([]int{len(now.Sources), len(old.Sources)}, []int{2, 2}) || slices.Contains(v.rows(), 0) {
					t.Fatalf("the board shows %d sources with %v rows", len(now.Sources), v.rows())
				}
				return true
			}
			if c := v.value(t, "warpgauge_sample_duration_seconds"); c < counted {
				t.Fatalf("the count of samples went back from %v to %v", counted, c)
			}
			return false
		})
		if row := latest(t, old.Sources[0].Ring); row.Cells[0] < 1 {
			t.Errorf("the last row of the dead child is %+v", row)
		}
		if got := v.counted(ReasonSignal); got != uint64(n+1) {
			t.Errorf("%d restarts after %d kills", got, n+1)
		}
	}
}

func TestReloadThroughTheWall(t *testing.T) {
	v := supervise(t, "counting", Options{})
	v.awaitService(t)
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Patience)
	defer cancel()
	next := list(t, "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE")
	if err := v.Reload(ctx, next); err != nil {
		t.Fatal(err)
	}
	for _, s := range v.board.Load().Sources {
		if len(s.Columns) != 2 || len(s.Fields.Fields) != 2 || s.Ring.Head() == 0 {
			t.Errorf("after Reload: %d columns, %d fields, %d rows", len(s.Columns), len(s.Fields.Fields), s.Ring.Head())
		}
	}
	// A child that comes later has the list, too.
	if err := syscall.Kill(v.state.Load().pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	old := v.board.Load()
	eventually.True(t, "another child", func() bool { return v.board.Load() != old })
	if got := len(v.board.Load().Sources[0].Columns); got != 2 {
		t.Errorf("%d columns in the new child, want 2", got)
	}
}

func TestChildrenThatMisbehave(t *testing.T) {
	f := func(mode, reason, text string, o Options) {
		t.Helper()
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			v := supervise(t, mode, o)
			eventually.True(t, "two restarts", func() bool { return v.counted(reason) >= 2 })
			ends := v.logs.FilterMessage("child ended, another is started").All()
			if got := ends[0].ContextMap()["reason"].(string); !strings.Contains(got, text) {
				t.Errorf("reason %q, want one with %q", got, text)
			}
			if st := v.status(); st.Up && mode != "hang-all" || st.Cause == sampler.CauseNone && mode != "hang-all" {
				t.Errorf("status %+v, want one that is not up", st)
			}
		})
	}
	f("exit", ReasonExit, "code 3: no more today", Options{})
	f("assert", ReasonAbort, "aborted: x.cc:1: Assertion `n > 0' failed.", Options{})
	f("junk", ReasonProtocol, "no magic", Options{})
	f("stranger", ReasonVersion, "another build", Options{})
	f("mute", ReasonHung, "silent", Options{Silence: 300 * time.Millisecond})
	f("hang-open", ReasonHung, "not opened", Options{OpenTimeout: 100 * time.Millisecond, Deadline: 100 * time.Millisecond})
	f("hang-all", ReasonHung, "no library call", Options{Deadline: 100 * time.Millisecond})
}

func TestAChildWithNothingToSampleRests(t *testing.T) {
	v := supervise(t, "absent", Options{})
	eventually.True(t, "the end of two children", func() bool { return v.value(t, "warpgauge_collector_opens_total") >= 2 })
	// The count may come before the status of the child that is just looking.
	eventually.True(t, "what the child has said", func() bool {
		st := v.status()
		return !st.Up && st.Cause == sampler.CauseNotLoaded && strings.Contains(st.Reason, "look for it")
	})
	if n := v.value(t, "warpgauge_collector_restarts_total"); n != 0 {
		t.Errorf("%v restarts, want none", n)
	}
	said := func() int { return v.logs.FilterMessageSnippet("not in use").Len() }
	eventually.True(t, "a line that there is nothing", func() bool { return said() > 0 })
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Patience)
	defer cancel()
	if err := v.Reload(ctx, list(t, "DCGM_FI_DEV_POWER_USAGE")); err != nil {
		t.Errorf("Reload with nothing to serve: %v", err)
	}
	if n := said(); n != 1 {
		t.Errorf("said %d times that there is nothing, want once", n)
	}
}

func TestALeakingChildIsReplacedWithoutAGap(t *testing.T) {
	v := supervise(t, "leak", Options{MemoryLimit: 160 << 20, RestartMax: 100 * time.Millisecond})
	v.awaitService(t)
	eventually.True(t, "two replacements", func() bool {
		if !slices.Equal([]int{len(v.rows())}, []int{2}) || slices.Contains(v.rows(), 0) {
			t.Fatalf("the board shows rows %v", v.rows())
		}
		return v.counted(ReasonMemory) >= 2
	})
}

// TestNothingGoesBackWhenAChildMakesRoom: whatever the one before has read, and
// however long its last call took, the next has read later.
func TestNothingGoesBackWhenAChildMakesRoom(t *testing.T) {
	v := supervise(t, "leaking clock", Options{
		MemoryLimit: 160 << 20, RestartMax: 100 * time.Millisecond, SlowInterval: 50 * time.Millisecond,
	})
	v.awaitService(t)
	old := v.board.Load()
	for n := range 5 {
		eventually.True(t, "another child", func() bool { return v.board.Load() != old })
		now := v.board.Load()
		for i, s := range now.Sources {
			before, after := latest(t, old.Sources[i].Ring), latest(t, s.Ring)
			for c := range after.Cells {
				if !(after.Cells[c] >= before.Cells[c]) {
					t.Errorf("child %d, source %d: column %d went back from %v to %v", n+1, i, c, before.Cells[c], after.Cells[c])
				}
			}
		}
		old = now
	}
	if got := v.counted(ReasonMemory); got < 5 {
		t.Errorf("%d restarts for memory, want 5", got)
	}
}

func TestRunEndsItsChild(t *testing.T) {
	v := supervise(t, "counting", Options{})
	v.awaitService(t)
	pid := v.state.Load().pid
	v.cancel()
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		t.Errorf("signal 0 to the child after Run: %v, want %v", err, syscall.ESRCH)
	}
}

// TestAChildThatDoesNotGoIsNamedAndHasNoSecond plays an uninterruptible sleep:
// SIGKILL has no effect until the test lets it.
func TestAChildThatDoesNotGoIsNamedAndHasNoSecond(t *testing.T) {
	var awake atomic.Bool
	v := supervise(t, "counting", Options{
		Silence: 300 * time.Millisecond, killGrace: 100 * time.Millisecond, RestartMax: 100 * time.Millisecond,
		sigkill: func(p *os.Process) error {
			if awake.Load() {
				return p.Kill()
			}
			return nil
		},
	})
	v.awaitService(t)
	pid, board := v.state.Load().pid, v.board.Load()
	freeze(t, pid)
	eventually.True(t, "the child to be abandoned", func() bool { return v.value(t, "warpgauge_collector_abandoned_children") == 1 })
	st := v.status()
	if st.Up || st.Cause != sampler.CauseStuck || st.Devices[0].State != sampler.Stalled || st.Devices[0].Cause != sampler.CauseStuck {
		t.Errorf("status %+v, want stuck devices", st)
	}
	eventually.True(t, "a while", func() bool { return time.Since(st.Devices[0].LastSample) > 1500*time.Millisecond })
	if got := v.state.Load().pid; got != pid || v.board.Load() != board || v.counted(ReasonHung) != 0 {
		t.Errorf("child %d with %d restarts, want only %d", got, v.counted(ReasonHung), pid)
	}
	awake.Store(true)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "another child", func() bool { return v.board.Load() != board && v.status().Up })
	if n := v.value(t, "warpgauge_collector_abandoned_children"); n != 0 || v.counted(ReasonHung) != 1 {
		t.Errorf("%v abandoned children and %d restarts, want 0 and 1", n, v.counted(ReasonHung))
	}
}
