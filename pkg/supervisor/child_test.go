package supervisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/collector/collectortest"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/session"
	"warpgauge/pkg/session/sessiontest"
	"warpgauge/pkg/view"
)

// The environment of children: a file of their own, and the deadline of calls.
const (
	envFile     = "WARPGAUGE_TEST_FILE"
	envDeadline = "WARPGAUGE_TEST_DEADLINE"
)

// beChild makes the test binary a child if its arguments say so.
func beChild() {
	if len(os.Args) > 2 && os.Args[1] == "child" {
		if err := childMain(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1) //nolint:forbidigo // this process is the child now
		}
		os.Exit(0) //nolint:forbidigo // this process is the child now
	}
}

// childMain is a child that behaves according to its mode.
func childMain(mode string) error {
	control := os.NewFile(ControlFD, "control")
	switch mode {
	case "exit":
		return errors.New("no more today")
	case "assert":
		fmt.Fprintln(os.Stderr, "x.cc:1: Assertion `n > 0' failed.")
		_ = syscall.Kill(os.Getpid(), syscall.SIGABRT)
		select {}
	case "panic":
		debug.SetTraceback("single")
		panic("oh no")
	case "killed":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "junk":
		_, _ = control.Write(make([]byte, 64))
		select {}
	}
	log := ChildLogger(os.Stderr, zapcore.InfoLevel)
	o := session.Options{Interval: 10 * time.Millisecond, Logger: log}
	if d, err := time.ParseDuration(os.Getenv(envDeadline)); err == nil {
		o.Deadline = d
	}
	return Child(context.Background(), control, time.Second, script(mode, log).Open, asItIs, o)
}

func asItIs(l field.List) field.List { return l }

// script is a child's library: two devices, and the behaviour of its mode.
func script(mode string, log *zap.Logger) *sessiontest.Library {
	l := sessiontest.New(new(testing.T), "dev0", "dev1") // a wrong order of calls is a crash
	// sampled calls f when each device has a row: its second call has begun.
	sampled := func(f func()) {
		go func() {
			for done := false; !done; time.Sleep(time.Millisecond) {
				l.Set(func() {
					if done = l.Samples["dev0"] > 1 && l.Samples["dev1"] > 1; done {
						f()
					}
				})
			}
		}()
	}
	l.OpenErr = func(fields field.List) error {
		log.Info("opened", zap.Int("fields", len(fields.Fields)), zap.Duration("took", time.Second))
		switch {
		case mode == "absent":
			return fmt.Errorf("look for it: %w", collector.ErrNotLoaded)
		case len(fields.Fields) == 2 && mode == "one dies of two" && first():
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		case mode == "hangs in Open":
			select {}
		case mode == "forks":
			return forks(os.Getenv(envFile))
		}
		return nil
	}
	switch mode {
	case "one is lost":
		l.Failure["dev1"] = collector.ErrDeviceLost
	case "all hang":
		sampled(func() { l.Hang["dev0"], l.Hang["dev1"] = make(chan struct{}), make(chan struct{}) })
	case "one hangs":
		sampled(func() { l.Hang["dev1"] = make(chan struct{}) })
	case "outdated":
		if first() {
			sampled(func() { l.Failure["dev0"] = fmt.Errorf("driver 2: %w", collector.ErrOutdated) })
		}
	case "leaks":
		go func() {
			for hoard := [][]byte{}; ; time.Sleep(10 * time.Millisecond) {
				hoard = append(hoard, bytes.Repeat([]byte{1}, 8<<20))
			}
		}()
	}
	return l
}

// forks starts processes that outlive everything unless they are ended: in the child's process group, in
// another one, in another session, and a daemon whose parent has ended. All hold a device open: the file of
// that name, locked here. It writes their process IDs to another file.
func forks(device string) error {
	f, err := os.OpenFile(device, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("lock the device: %w", err)
	}
	var pids []byte
	for _, a := range []*syscall.SysProcAttr{nil, {Setpgid: true}, {Setsid: true}} {
		cmd := exec.Command("sleep", "600")
		cmd.SysProcAttr, cmd.ExtraFiles = a, []*os.File{f}
		if err := cmd.Start(); err != nil {
			return err
		}
		pids = fmt.Appendln(pids, cmd.Process.Pid)
	}
	// The daemon is forked without exec, and it has a child.
	daemon := exec.Command("sh", "-c", "(sleep 600; :) >/dev/null 2>&1 & echo $!")
	daemon.SysProcAttr, daemon.ExtraFiles = &syscall.SysProcAttr{Setsid: true}, []*os.File{f}
	out, err := daemon.Output()
	if err != nil {
		return err
	}
	return os.WriteFile(device+".pids", append(pids, out...), 0o600)
}

// first reports whether this is the first process that asks.
func first() bool {
	f, err := os.OpenFile(os.Getenv(envFile), os.O_CREATE|os.O_EXCL, 0o600)
	return err == nil && f.Close() == nil
}

const temperature, power = "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE"

// supervised is a running Supervisor of children.
type supervised struct {
	*Supervisor
	view.Merger
	t    *testing.T
	logs *observer.ObservedLogs
	stop func() error // ends Run and returns its error, once
}

func supervise(t *testing.T, mode string, o Options) *supervised {
	t.Helper()
	core, logs := observer.New(zap.DebugLevel)
	o.Name, o.Command, o.Logger = "toy", []string{"toy", "child", mode}, zap.New(core)
	o.Environment = append(o.Environment, "WARPGAUGE_TEST_")
	v := &supervised{t: t, logs: logs}
	o.Page = v.Part()
	v.Supervisor = New(Wanted{List: collectortest.Gauges(t, temperature)}, o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- v.Run(ctx) }()
	v.stop = sync.OnceValue(func() error { cancel(); return <-done })
	t.Cleanup(func() {
		err := v.stop()
		testkit.ErrorIf(t, err != nil, "Run: %v", err)
		if t.Failed() {
			for _, e := range logs.Filter(func(e observer.LoggedEntry) bool { return e.Level > zap.DebugLevel }).All() {
				t.Logf("%v %s %v", e.Level, e.Message, e.ContextMap())
			}
		}
	})
	return v
}

// await waits until two sources have rows.
func (v *supervised) await() {
	v.t.Helper()
	eventually.True(v.t, "two sources with rows", func() bool {
		return len(v.rows()) == 2 && !slices.Contains(v.rows(), 0) && v.Status().Up
	})
}

// rows returns the heads of the rings on the board.
func (v *supervised) rows() (heads []uint64) {
	for _, s := range v.Board().Load().Sources {
		heads = append(heads, s.Ring.Head())
	}
	return heads
}

// pid returns the child's process ID; 0: there is none.
func (v *supervised) pid() int { return int(value(v.t, v.Supervisor, "warpgauge_collector_child_pid")) }

func (v *supervised) restarts(reason string) float64 {
	return value(v.t, v.Supervisor, "warpgauge_collector_child_ends_total", "reason", reason)
}

func (v *supervised) want(change func(*Wanted)) error {
	ctx, cancel := context.WithTimeout(context.Background(), eventually.Patience)
	defer cancel()
	return v.Want(ctx, change)
}

func TestRowsStatesLogsAndMetricsOfAChild(t *testing.T) {
	t.Parallel()
	v := supervise(t, "one is lost", Options{})
	v.await()
	eventually.True(t, "the states", func() bool {
		st := v.Status()
		return len(st.Devices) == 2 && st.Devices[0].State == session.Up && st.Devices[1].State == session.Lost
	})
	st := v.Status().Devices[0]
	testkit.ErrorIf(t, st.Device.ID != "dev0" || st.LastSample.IsZero(), "device 0 is %+v, want dev0 with the time of its last sample", st)
	var row ring.Row
	s := v.Board().Load().Sources[0]
	testkit.ErrorIf(t, !s.Latest(&row) || len(row.Cells) != 1 || row.Stamps[0] == 0 || s.Collector != "toy", "a row is %+v, want a value and a stamp", row)
	eventually.True(t, "the child's log", func() bool { return v.logs.FilterMessage("opened").Len() == 1 })
	fields := v.logs.FilterMessage("opened").All()[0].ContextMap()
	testkit.ErrorIf(t, fields["fields"] != 1.0 || fields["took"] != "1s" || fields["collector"] != "toy" || fields["pid"] != int64(v.pid()), "fields of the log are %v", fields)
	for name, least := range map[string]float64{
		"warpgauge_sample_duration_seconds": 1, "warpgauge_sample_errors_total": 1, "warpgauge_collector_child_up": 1,
		"warpgauge_collector_child_resident_bytes": 1 << 20, "warpgauge_collector_child_pid": 2, "warpgauge_collector_child_cpu_seconds_total": 0.01,
	} {
		eventually.True(t, name, func() bool { return value(t, v.Supervisor, name) >= least })
	}
	must(t, v.stop())
	err := syscall.Kill(v.pid(), 0)
	testkit.ErrorIf(t, v.pid() != 0 && !errors.Is(err, syscall.ESRCH), "the child is still there: %v", err)
}

func TestChildrenThatMisbehave(t *testing.T) {
	t.Parallel()
	f := func(mode, reason, text string, o Options) {
		t.Helper()
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			v := supervise(t, mode, o)
			eventually.True(t, "two restarts", func() bool { return v.restarts(reason) >= 2 })
			ends := v.logs.FilterMessage("session ended; starting another one").All()
			if len(ends) == 0 || !strings.Contains(fmt.Sprint(ends[0].ContextMap()["reason"]), text) || ends[0].ContextMap()["cause"] != reason {
				t.Errorf("log %v, want cause %s and a reason with %q", ends, reason, text)
			}
			if mode != "all hang" {
				eventually.True(t, "a status that is not up", func() bool {
					st := v.Status()
					return !st.Up && st.Cause == session.CauseChild && strings.Contains(st.Reason, text)
				})
			}
		})
	}
	f("exit", ReasonExit, "code 1: no more today", Options{})
	f("assert", ReasonAbort, "aborted: x.cc:1: Assertion `n > 0' failed.", Options{})
	f("panic", ReasonCrash, "panic: oh no", Options{})
	f("killed", ReasonSignal, "SIGKILL", Options{})
	f("junk", ReasonProtocol, "unexpected end of JSON", Options{})
}

// A signal that ends a child says nothing about its new list. The next reload keeps the process.
func TestChildKilledWithANewList(t *testing.T) {
	t.Setenv(envFile, filepath.Join(t.TempDir(), "first"))
	v := supervise(t, "one dies of two", Options{})
	v.await()
	err := v.want(setList(collectortest.Gauges(t, temperature, power)))
	n := v.restarts(ReasonSignal)
	testkit.ErrorIf(t, n != 1 || err != nil, "a signal ended %v, the reload: %v; want 1 and no error", n, err)
	pid := v.pid()
	if err := v.want(setList(collectortest.Gauges(t, power))); err != nil || v.pid() != pid {
		t.Errorf("the next reload: %v, child %d, want %d", err, v.pid(), pid)
	}
}

// A child is killed if all its calls hang, but not for a single hung GPU.
func TestChildrenThatHang(t *testing.T) {
	t.Setenv(envDeadline, "100ms")
	o := Options{Session: session.Options{Deadline: 100 * time.Millisecond}, StopTimeout: 8 * time.Second} // the child ends within 1 s
	v := supervise(t, "all hang", o)
	eventually.True(t, "a restart", func() bool { return v.restarts(ReasonHung) >= 1 })
	t.Setenv(envDeadline, "1s") // within which the other device answers on a busy machine
	o.Session.Deadline = time.Second
	v = supervise(t, "one hangs", o)
	v.await()
	eventually.True(t, "the device to be stalled", func() bool {
		st := v.Status()
		return len(st.Devices) == 2 && st.Devices[1].Cause == session.CauseHung && st.Devices[0].State == session.Up
	})
	// A reload does not wait for a hanging child, but kills it.
	begin, pid := time.Now(), v.pid()
	must(t, v.want(setList(collectortest.Gauges(t, power))))
	testkit.Equal(t, fmt.Sprintf("after a reload of %v the child is the same", time.Since(begin)), false, v.pid() == pid)
	testkit.Equal(t, "restarts for a reload", 0.0, v.restarts(ReasonHung))
}

// A child whose GPUs all hang is killed after two deadlines, unless one of them answers in between. A switch does not count.
func TestHangsOfTwoDeadlines(t *testing.T) {
	o := Options{}.withDefaults()
	c := &child{o: &o, end: make(chan struct{})}
	close(c.end) // there is no process to kill
	c.view.Store(&[]*view.Source{part("toy", 1, "a", "b", "switch")})
	states := func(second session.Cause) {
		c.said.Store(&[]session.DeviceStatus{{State: session.Stalled, Cause: session.CauseHung}, {State: session.Stalled, Cause: second}, {}})
	}
	begin, limit := time.Now(), 2*c.o.Session.Deadline
	states(session.CauseHung)
	c.checkHang(begin.Add(-limit))
	states(session.CauseError)
	c.checkHang(begin.Add(-1))
	states(session.CauseHung)
	c.checkHang(begin)
	c.checkHang(begin.Add(limit))
	testkit.Equal(t, fmt.Sprintf("killed within %v", limit), false, !c.killed.IsZero())
	c.checkHang(begin.Add(limit + 1))
	testkit.Equal(t, fmt.Sprintf("not killed after %v", limit), false, c.killed.IsZero())
}

// startToy starts a child without a Supervisor.
func startToy(t *testing.T, mode string) *child {
	t.Helper()
	o := Options{Name: "toy", Command: []string{"toy", "child", mode}}.withDefaults()
	c := testkit.Get(startChild(collectortest.Gauges(t, temperature), nil, &o, zap.NewNop()))(t)
	t.Cleanup(func() {
		c.kill(ReasonHung, "the test is over")
		<-c.done()
	})
	return c
}

// The slow limits, with a clock that is ahead.
func TestChildrenThatAreSilent(t *testing.T) {
	t.Parallel()
	f := func(mode string, check func(c *child), text string) {
		t.Helper()
		c := startToy(t, mode)
		for range 5 { // states
			select {
			case <-c.changed():
			case <-c.done():
				t.Fatalf("%s: the child has ended: %+v", mode, c.ended())
			}
		}
		check(c)
		<-c.done()
		e := c.ended()
		testkit.ErrorIf(t, e.reason != ReasonHung || !strings.Contains(e.text, text), "%s: the end is %+v, want %s with %q", mode, e, ReasonHung, text)
	}
	f("counting", func(c *child) {
		c.check(time.Now().Add(c.silence() - time.Second))
		c.check(time.Now().Add(c.silence() + 2*time.Second))
	}, "silent for")
	f("hangs in Open", func(c *child) {
		c.checkHang(time.Now().Add(session.OpenTimeout))
		if c.killed.IsZero() {
			c.checkHang(time.Now().Add(session.OpenTimeout + 6*time.Second))
		}
	}, "has not opened its library")
}

func TestAChildOverItsMemoryLimitIsReplaced(t *testing.T) {
	t.Parallel()
	v := supervise(t, "leaks", Options{MemoryLimit: 160 << 20, RestartMax: 100 * time.Millisecond})
	v.await()
	eventually.True(t, "two replacements", func() bool {
		if len(v.rows()) != 2 || slices.Contains(v.rows(), 0) {
			t.Fatalf("the page has rows %v", v.rows())
		}
		return v.restarts(ReasonMemory) >= 2
	})
}

func TestAnOutdatedChildIsReplaced(t *testing.T) {
	t.Setenv(envFile, filepath.Join(t.TempDir(), "first"))
	v := supervise(t, "outdated", Options{})
	eventually.True(t, "a restart", func() bool { return v.restarts(ReasonOutdated) == 1 })
	v.await()
	end := v.logs.FilterMessage("session ended; starting another one").All()[0].ContextMap()
	testkit.ErrorIf(t, end["pause"] != time.Duration(0) || end["pid"] == int64(v.pid()), "the end is %v, want no pause and another process than %d", end, v.pid())
}

func TestAChildWithNothingToSample(t *testing.T) {
	t.Parallel()
	v := supervise(t, "absent", Options{})
	eventually.True(t, "three sessions", func() bool {
		return value(t, v.Supervisor, "warpgauge_collector_opens_total", "result", "error") >= 3
	})
	eventually.True(t, "what it has reported", func() bool {
		st := v.Status()
		return !st.Up && st.Cause == session.CauseNotLoaded && strings.Contains(st.Reason, "look for it")
	})
	testkit.Equal(t, "restarts", 0.0, value(t, v.Supervisor, "warpgauge_collector_restarts_total"))
	absent := v.logs.FilterMessageSnippet("nothing to sample").All()
	opened := v.logs.FilterLevelExact(zap.InfoLevel).FilterMessage("opened").Len()
	testkit.FatalIf(t, len(absent) != 1 || opened != 1, "%d lines that there is nothing, and %d of the child's, want one each", len(absent), opened)
	testkit.Equal(t, "level, because the collector was named", zap.WarnLevel, absent[0].Level)
	must(t, v.want(setList(collectortest.Gauges(t, power))))
}

// A child that does not react is killed at its end.
func TestAChildThatMustBeKilled(t *testing.T) {
	t.Parallel()
	v := supervise(t, "counting", Options{StopTimeout: 6 * time.Second}) // an eighth for the end after SIGKILL
	v.await()
	freeze(t, v.pid())
	must(t, v.want(setList(collectortest.Gauges(t, power))))
	testkit.Equal(t, "lines that it was killed", 1, v.logs.FilterMessageSnippet("killing a child").Len())
	v.await()
	freeze(t, v.pid())
	err := v.want(release)
	testkit.ErrorIf(t, err != nil || v.pid() != 0, "release: %v, child %d", err, v.pid())
	must(t, v.want(resume))
	v.await()
	freeze(t, v.pid())
	must(t, v.stop())
}

// freeze stops a process and waits until none of its threads runs any more.
func freeze(t *testing.T, pid int) {
	t.Helper()
	must(t, syscall.Kill(pid, syscall.SIGSTOP))
	eventually.True(t, "all threads to be stopped", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		testkit.FatalIf(t, err != nil || len(threads) == 0, "no threads of %d: %v", pid, err)
		return !slices.ContainsFunc(threads, func(path string) bool {
			raw, err := os.ReadFile(path)
			return err == nil && !bytes.HasPrefix(raw[bytes.LastIndexByte(raw, ')')+1:], []byte(" T"))
		})
	})
}

// A child that does not end after SIGKILL (simulated here) is reported, and no second child starts.
func TestAChildThatCannotBeKilled(t *testing.T) {
	t.Parallel()
	v := supervise(t, "one hangs", Options{Session: session.Options{Deadline: 100 * time.Millisecond}})
	v.await()
	eventually.True(t, "a call to hang", func() bool { return v.Status().Devices[1].Cause.Hangs() })
	pid := v.pid()
	freeze(t, pid) // it ignores the request to end
	c := v.now.Load().life.(*child)
	c.mu.Lock()
	c.why, c.killed = &ending{reason: ReasonHung, text: "silent"}, time.Now().Add(-killGrace)
	c.mu.Unlock()
	eventually.True(t, "the child to be abandoned", func() bool {
		return value(t, v.Supervisor, "warpgauge_collector_abandoned_children") == 1
	})
	done := v.Change(setList(collectortest.Gauges(t, power)))
	eventually.True(t, "the status", func() bool { st := v.Status(); return st.Cause == session.CauseStuck })
	testkit.Has(t, "reason, with the number of the process", v.Status().Reason, fmt.Sprint(pid))
	testkit.Equal(t, "causes", []session.Cause{session.CauseChild, session.CauseStuck}, []session.Cause{v.Status().Devices[0].Cause, v.Status().Devices[1].Cause})
	err := syscall.Kill(pid, syscall.SIGKILL)
	testkit.FatalIf(t, err != nil && !errors.Is(err, syscall.ESRCH), "%v", err)
	must(t, <-done)
	testkit.ErrorIf(t, v.pid() == pid || value(t, v.Supervisor, "warpgauge_collector_abandoned_children") != 0, "child %d, want another", v.pid())
}

// Processes that a library has forked, also in other sessions, die with their child for any kind of end, and
// release the device. Other processes of this process stay.
func TestForkedProcessesDieWithTheirChild(t *testing.T) {
	device := filepath.Join(t.TempDir(), "device")
	t.Setenv(envFile, device)
	others := []int{bystander(t, nil), bystander(t, &syscall.SysProcAttr{Setsid: true})}
	v := supervise(t, "forks", Options{})
	alive := func(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
	forked := func() (pids []int) {
		v.await()
		raw, err := os.ReadFile(device + ".pids")
		for word := range strings.FieldsSeq(string(raw)) {
			pid, perr := strconv.Atoi(word)
			testkit.ErrorIf(t, perr != nil || !alive(pid), "process %q is not there: %v", word, perr)
			pids = append(pids, pid)
		}
		testkit.FatalIf(t, err != nil || len(pids) != 4, "processes %v, %v", pids, err)
		return pids
	}
	f := testkit.Get(os.OpenFile(device, os.O_CREATE|os.O_RDWR, 0o600))(t)
	defer func() { _ = f.Close() }()
	gone := func(when string, pids []int) {
		t.Helper()
		testkit.Equal(t, when+": forked processes", []int{}, slices.DeleteFunc(pids, func(pid int) bool { return !alive(pid) }))
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		testkit.ErrorIf(t, err != nil, "%s the device is in use: %v", when, err)
		_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
	}

	pids := forked()
	must(t, v.want(release))
	gone("after a release", pids)
	must(t, v.want(resume))
	pids = forked()
	must(t, syscall.Kill(v.pid(), syscall.SIGKILL))
	eventually.True(t, "a restart", func() bool { return v.restarts(ReasonSignal) == 1 })
	testkit.Equal(t, "forked processes of a killed child", []int{}, slices.DeleteFunc(pids, func(pid int) bool { return !alive(pid) }))
	pids = forked() // which locks the device again
	must(t, v.stop())
	gone("after the end", pids)
	testkit.Equal(t, "processes that are not of a library and were ended", []int{}, slices.DeleteFunc(others, alive))
}

// bystander starts another process of this one.
func bystander(t *testing.T, a *syscall.SysProcAttr) int {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = a
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd.Process.Pid
}

// The environment of a child has only the variables that libraries need, and its mark.
func TestEnvironmentOfAChild(t *testing.T) {
	t.Setenv("AWS_SECRET_ACCESS_KEY", "x")
	t.Setenv("WARPGAUGE_WEB_CONFIG_FILE", "x")
	t.Setenv("CHILD_OF_WARPGAUGE", "another")
	t.Setenv("NVIDIA_VISIBLE_DEVICES", "all")
	v := supervise(t, "counting", Options{Environment: []string{"NVIDIA_"}})
	v.await()
	text := testkit.Get(os.ReadFile(fmt.Sprintf("/proc/%d/environ", v.pid())))(t)
	all := strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
	marks := 0
	for _, variable := range all {
		name, value, _ := strings.Cut(variable, "=")
		switch {
		case name == "CHILD_OF_WARPGAUGE" && value != "another" && len(value) > 20:
			marks++
		case !slices.ContainsFunc(append(passed, "NVIDIA_", "WARPGAUGE_TEST_"), func(p string) bool { return strings.HasPrefix(variable, p) }):
			t.Errorf("the child has %q", variable)
		}
	}
	testkit.ErrorIf(t, marks != 1 || !slices.Contains(all, "NVIDIA_VISIBLE_DEVICES=all") || !slices.Contains(all, "PATH="+os.Getenv("PATH")), "the environment is %q", all)
	all = []string{"PATH=/bin", "KUBERNETES_TOKEN=x", "LD_LIBRARY_PATH=/l", "PASSWORD=y", "LC_ALL=C", "HSA_X=1", "XPATH=/", "WARPGAUGE_X=1"}
	testkit.Equal(t, "environment", []string{"MALLOC_ARENA_MAX=1", "PATH=/bin", "LD_LIBRARY_PATH=/l", "LC_ALL=C", "HSA_X=1"}, environment(all, []string{"HSA_"}))
}

// keeper is a collector whose event sets cannot be closed.
type keeper struct {
	collector.Collector
	hangs chan struct{}
}

func (keeper) Keep()                       {}
func (keeper) Inherit(collector.Collector) {}
func (k keeper) Release()                  { <-k.hangs }

// A child without a parent ends, or reports that it cannot. It ends although the event sets that it has kept cannot be
// closed.
func TestAChildWithoutAParent(t *testing.T) {
	t.Cleanup(func() { signal.Reset() }) // a child ignores its parent's signals
	for mode, want := range map[string]error{"counting": nil, "hangs in Sample": ErrOrphaned, "hangs in Release": nil} {
		parent, conn := pair(t)
		control, err := conn.File()
		must(t, err)
		l, hangs, ended := sessiontest.New(t, "a"), make(chan struct{}), make(chan error, 1)
		if mode == "hangs in Sample" {
			l.Hang["a"] = hangs
		}
		go func() {
			ended <- Child(context.Background(), control, 50*time.Millisecond, func() collector.Collector {
				if mode == "hangs in Release" {
					return keeper{l.Open(), hangs}
				}
				return l.Open()
			}, asItIs, session.Options{Interval: 10 * time.Millisecond})
		}()
		must(t, writeFrame(parent.conn, inputOf(collectortest.Gauges(t, temperature), nil), -1))
		testkit.Get(parent.next())(t)
		eventually.True(t, "the call that hangs", func() (is bool) {
			l.Set(func() { is = want == nil || l.Hanging > 0 })
			return is
		})
		parent.close()
		testkit.Equal(t, mode+": the end of the child", want, <-ended, cmpopts.EquateErrors())
		close(hangs)
	}
}
