package supervisor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/session"
	"warpgauge/pkg/session/sessiontest"
)

// A reload, a change of devices and the return of a device leave no gap.
func TestTheNextViewLeavesNoGap(t *testing.T) {
	f := func(name string, limit time.Duration, change func(b *bubble, l *sessiontest.Library), prepare ...func(l *sessiontest.Library)) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := sessiontest.New(t, "a", "b", "c")
				b := start(t, l, Options{Session: session.Options{RescanInterval: 5 * time.Second}})
				pass(12 * time.Second)
				for _, p := range prepare {
					l.Set(func() { p(l) })
				}
				version := b.Board().Load().Version
				stop := b.watch(limit, "a", "b")
				change(b, l)
				pass(10 * time.Second)
				stop()
				testkit.Equal(t, "the view was replaced", true, b.Board().Load().Version != version)
				testkit.ErrorIf(t, l.Opens < 2 || !b.Status().Up, "opened %d times, status %+v", l.Opens, b.Status())
				_, _ = b.stop()
				testkit.Equal(t, "a collector is left open", false, l.Held())
			})
		})
	}
	reload := func(b *bubble, _ *sessiontest.Library) {
		b.change(setList(list(3)))
		testkit.Equal(b.t, "columns after a reload", []int{3, 3, 3}, shownColumns(b.Board()))
	}
	f("a reload", 1100*time.Millisecond, reload)
	f("a reload with a slow Open", 3200*time.Millisecond, reload, func(l *sessiontest.Library) { l.OpenFor = 2 * time.Second })
	f("a reload with a device that has no values at first", 3200*time.Millisecond, reload, func(l *sessiontest.Library) { l.Mute["a"] = 1500 * time.Millisecond })
	f("a reload with readings that need two rows", 2200*time.Millisecond, reload, func(l *sessiontest.Library) { l.Blank["b"] = 1 })
	f("two reloads at once", 1100*time.Millisecond, func(b *bubble, l *sessiontest.Library) {
		first := b.Change(setList(list(2)))
		reload(b, l)
		must(b.t, <-first)
	})
	f("a device that vanishes", 1100*time.Millisecond, func(_ *bubble, l *sessiontest.Library) { l.Set(func() { l.IDs = l.IDs[:2] }) })
	f("a device that is new", 1100*time.Millisecond, func(_ *bubble, l *sessiontest.Library) { l.Set(func() { l.IDs = []string{"0", "a", "b", "c"} }) })
	f("a driver that is loaded again", 3200*time.Millisecond, func(_ *bubble, l *sessiontest.Library) {
		l.Set(func() { l.Failure["c"] = fmt.Errorf("x: %w", collector.ErrOutdated) })
		pass(1500 * time.Millisecond)
		l.Set(func() { delete(l.Failure, "c") })
	})
}

// The supervisor waits a limited time for cells with former values, and not at all for cells without.
func TestTheNextViewIsWaitedForNoLongerThanTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := sessiontest.New(t, "a", "b")
		l.Failure["b"] = errors.New("no")
		b := start(t, l, Options{Session: session.Options{Deadline: 4 * time.Second}})
		pass(3 * time.Second)
		took, err := b.want(setList(list(2)))
		testkit.ErrorIf(t, took > 100*time.Millisecond || err != nil, "a reload took %v (%v) with a device that had no values before", took, err)
		pass(2 * time.Second)
		l.Set(func() { l.Mute["a"] = time.Hour })
		took, err = b.want(setList(list(3)))
		testkit.ErrorIf(t, took != 4*time.Second || err != nil, "a reload took %v (%v) with a device that gives no values any more, want the deadline of 4 s", took, err)
	})
}

// If a list cannot be opened, the former list stays in service until another comes.
func TestAListThatCannotBeOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := sessiontest.New(t, "a")
		l.OpenErr = func(fields field.List) error {
			if len(fields.Fields) == 2 {
				return errRefused
			}
			return nil
		}
		b := start(t, l, Options{})
		pass(3 * time.Second)
		stop := b.watch(1100*time.Millisecond, "a")
		_, err := b.want(setList(list(2)))
		testkit.Has(t, "error of the reload", fmt.Sprint(err), "engine refused", "the former one stays")
		pass(2 * time.Second)
		testkit.Equal(t, "columns, those of the former list", []int{1}, shownColumns(b.Board()))
		st := b.Status()
		testkit.ErrorIf(t, !st.Up || st.Cause != session.CauseError || b.Serves(), "status %+v, want up, with a problem and without the new list", st)
		opens := l.Opens
		pass(5 * time.Minute)
		testkit.Equal(t, "times that it was opened", opens, l.Opens)
		stop()
		l.Set(func() { l.Failure["a"] = collector.ErrOutdated }) // later sessions use it, too
		pass(time.Second)
		l.Set(func() { delete(l.Failure, "a") })
		pass(5 * time.Second)
		testkit.Equal(t, "columns of a later session", []int{1}, shownColumns(b.Board()))
		b.change(setList(list(3)))
		testkit.Equal(t, "problem with another list", session.CauseNone, b.Status().Cause)
	})
}

// At start there is no former list: the supervisor tries the list again, with growing pauses.
func TestTheFirstListIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := sessiontest.New(t, "a")
		tries := 0
		l.OpenErr = func(field.List) error { tries++; return errRefused }
		b := start(t, l, Options{RestartMax: 10 * time.Second})
		_, err := b.want(setList(list(1)))
		testkit.Has(t, "Want", fmt.Sprint(err), "engine refused")
		pass(time.Minute)
		testkit.Between(t, "tries in a minute, about 11: after 0.1 s, 0.2 s … 10 s", 8, 14, tries)
		st := b.Status()
		testkit.ErrorIf(t, st.Up || st.Cause != session.CauseError || !strings.Contains(st.Reason, "engine refused"), "status %+v", st)
		testkit.Equal(t, "lines of log for one reason", 1, b.count("session ended"))
		l.Set(func() { l.OpenErr = nil })
		pass(10 * time.Second)
		st = b.Status()
		testkit.ErrorIf(t, !st.Up || st.Cause != session.CauseNone, "status %+v, want up", st)
	})
}

func TestReleaseStandbyAndResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := sessiontest.New(t, "a", "b")
		b := start(t, l, Options{})
		pass(3 * time.Second)
		f := func(what string, change func(*Wanted), cause session.Cause, devices int) {
			t.Helper()
			pass(time.Second) // the first rows
			took, err := b.want(change)
			testkit.ErrorIf(t, err != nil || took > time.Second, "%s: %v after %v", what, err, took)
			st := b.Status()
			rests := cause != session.CauseNone
			testkit.ErrorIf(t, st.Cause != cause || st.Up == rests || len(st.Devices) != devices, "%s: status %+v, want cause %q and %d devices", what, st, cause, devices)
			if l.Held() == rests || (len(b.Board().Load().Sources) == 0) != rests {
				t.Errorf("%s: the library is open: %v, sources: %d", what, l.Held(), len(b.Board().Load().Sources))
			}
			for _, d := range st.Devices {
				testkit.ErrorIf(t, cause == session.CauseReleased && (d.State != session.Released || d.LastSample.IsZero()), "%s: %+v, want released", what, d)
			}
		}
		f("release", release, session.CauseReleased, 2)
		f("standby of what is released", standby, session.CauseReleased, 2)
		f("resume of what is on standby", resume, session.CauseStandby, 0)
		f("the end of standby", wakeUp, session.CauseNone, 2)
		f("standby", standby, session.CauseStandby, 0)
		f("a list while it rests", setList(list(2)), session.CauseStandby, 0)
		f("the end of standby", wakeUp, session.CauseNone, 2)
		testkit.Equal(t, "columns, those of the list that came meanwhile", []int{2, 2}, shownColumns(b.Board()))
		f("nothing", func(*Wanted) {}, session.CauseNone, 2)
		f("release", release, session.CauseReleased, 2)
		f("resume", resume, session.CauseNone, 2)
		testkit.Equal(t, "lines that it is resumed", 3, b.count("collector is resumed"))
		testkit.Equal(t, "lines of devices that come or go", 0, b.count("has disappeared")+b.count("is back"))
	})
}

// Changes of all kinds at once, from several goroutines: each is answered, and the last wanted state wins.
func TestConcurrentChanges(t *testing.T) {
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			l := sessiontest.New(t, "a", "b")
			b := start(t, l, Options{})
			var wg sync.WaitGroup
			changes := []func(*Wanted){release, resume, standby, wakeUp, setList(list(1)), setList(list(2)), func(*Wanted) {}}
			for i := range uint64(4) {
				random := rand.New(rand.NewPCG(seed, i))
				wg.Go(func() {
					for range 25 {
						time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
						b.change(changes[random.IntN(len(changes))])
						_ = b.Status()
					}
				})
			}
			wg.Wait()
			b.change(func(w *Wanted) { *w = Wanted{List: list(5)} })
			got := shownColumns(b.Board())
			testkit.ErrorIf(t, !slices.Equal(got, []int{5, 5}) || !b.Status().Up, "seed %d: columns are %v, status %+v, want the last list", seed, got, b.Status())
			_, _ = b.stop()
			testkit.Equal(t, fmt.Sprintf("seed %d: a collector is left open", seed), false, l.Held())
		})
	}
}

func TestAnAbsentVendorStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		looks, there := 0, false
		l := sessiontest.New(t, "a")
		b := start(t, l, Options{RestartMax: 20 * time.Second, Present: func() (string, bool) {
			mu.Lock()
			defer mu.Unlock()
			looks++
			return "there is no /dev/toy0", there
		}})
		took, err := b.want(setList(list(1)))
		testkit.ErrorIf(t, took != 0 || err != nil, "a reload: %v after %v", err, took)
		pass(5 * time.Minute)
		mu.Lock()
		testkit.ErrorIf(t, l.Opens != 0 || looks < 10 || looks > 25, "opened %d times after %d looks in five minutes, want none and about 20", l.Opens, looks)
		there = true
		mu.Unlock()
		st := b.Status()
		testkit.ErrorIf(t, st.Up || st.Cause != session.CauseNotLoaded || st.Reason != "there is no /dev/toy0", "status %+v", st)
		testkit.Equal(t, "lines of log", 1, b.logs.Len())
		pass(20 * time.Second)
		testkit.Equal(t, "it is up now that it is there", true, b.Status().Up)
	})
}

func TestACollectorWithNothingToSampleIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := sessiontest.New(t, "a")
		tries := 0
		l.OpenErr = func(field.List) error { tries++; return fmt.Errorf("look for it: %w", collector.ErrNoDevices) }
		b := start(t, l, Options{})
		pass(5 * time.Minute)
		testkit.Between(t, "tries in five minutes, about 14", 8, 20, tries)
		st := b.Status()
		testkit.ErrorIf(t, st.Up || st.Cause != session.CauseNoDevices, "status %+v", st)
		testkit.Equal(t, fmt.Sprint("lines of log in ", b.logs.All()), 1, b.logs.Len())
		for _, change := range []func(*Wanted){setList(list(2)), func(*Wanted) {}, release, standby, resume, wakeUp} {
			took, err := b.want(change)
			testkit.ErrorIf(t, took > time.Second || err != nil, "a change: %v after %v", err, took)
		}
		// A list without fields removes the former list's fields from the page.
		l.Set(func() { l.OpenErr = nil })
		pass(time.Minute)
		testkit.Equal(t, "it is up", true, b.Status().Up)
		b.change(setList(field.List{}))
		if st := b.Status(); st.Cause != session.CauseNothing || len(b.Board().Load().Sources) != 0 || l.Held() {
			t.Errorf("without fields the status is %+v with %d sources", st, len(b.Board().Load().Sources))
		}
	})
}

// A change during a session that finds nothing gets that session's answer.
func TestAChangeDuringAnOpenIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, err := range []error{collector.ErrNoDevices, errRefused} {
			l := sessiontest.New(t, "a")
			l.OpenFor = 2 * time.Second
			l.OpenErr = func(field.List) error { return err }
			b := start(t, l, Options{})
			pass(time.Second)
			took, _ := b.want(func(*Wanted) {})
			testkit.Equal(t, fmt.Sprintf("%v: time until an answer, when the session ends", err), time.Second, took)
			_, _ = b.stop()
			_, err = b.want(release)
			testkit.Equal(t, "a change after the end", context.Canceled, err, cmpopts.EquateErrors())
		}
	})
}

func TestStatusDuringAPlannedHandoverStaysUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := sessiontest.New(t, "a")
		l.OpenFor = 2 * time.Second
		b := start(t, l, Options{})
		pass(5 * time.Second)
		done := b.Change(setList(list(2)))
		for range 40 {
			pass(100 * time.Millisecond)
			st := b.Status()
			testkit.FatalIf(t, !st.Up || len(st.Devices) != 1 || st.Devices[0].State != session.Up, "status %+v, want up with the device", st)
		}
		must(t, <-done)
		l.Set(func() { l.OpenFor = 20 * time.Second }) // the handover is over
		b.Change(setList(list(1)))
		pass(10 * time.Second)
		st := b.Status()
		testkit.ErrorIf(t, st.Up || st.Cause != session.CauseOpening || st.Devices[0].State != session.Stalled, "status %+v, want not up", st)
	})
}

func TestStopWithACallThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := sessiontest.New(t, "a", "b")
		b := start(t, l, Options{StopTimeout: 2 * time.Second})
		pass(3 * time.Second)
		hang := make(chan struct{})
		l.Set(func() { l.Hang["b"] = hang })
		pass(1500 * time.Millisecond)
		early := b.Change(setList(list(2))) // before the call is known to hang
		pass(10 * time.Second)
		select {
		case err := <-early:
			testkit.Has(t, "a reload shortly after the hang", fmt.Sprint(err), "library calls for b have not returned")
		default:
			t.Error("a reload shortly after the hang has no answer")
		}
		st := b.state("a")
		testkit.ErrorIf(t, st.State != session.Up || time.Since(st.LastSample) > time.Second, "after a reload the other device is %+v, want up", st)
		testkit.Equal(t, "the device that hangs", session.CauseHung, b.state("b").Cause)
		// A call in this process cannot be ended: the former list stays.
		if took, err := b.want(setList(list(2))); err == nil || !strings.Contains(err.Error(), "library calls for b have not returned") || took > 2*time.Second {
			t.Errorf("a reload: %v after %v, want the device that hangs", err, took)
		}
		testkit.Equal(t, "the other device", session.Up, b.state("a").State)
		took, err := b.stop()
		if err == nil || !strings.Contains(err.Error(), "library calls for b") || took != 2*time.Second+stopSlack {
			t.Errorf("Run returned %v after %v, want the device that hangs after 2.25 s", err, took)
		}
		testkit.Equal(t, "the collector is open during the call", true, l.Held())
		close(hang)
		synctest.Wait()
	})
}

// A release waits for a hanging call, reports it, and still removes everything from the page.
func TestReleaseWithACallThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := sessiontest.New(t, "a")
		b := start(t, l, Options{})
		pass(3 * time.Second)
		hang := make(chan struct{})
		l.Set(func() { l.Hang["a"] = hang })
		pass(10 * time.Second)
		_, err := b.want(release)
		testkit.ErrorIf(t, !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "library calls for a"), "release: %v, want the device that hangs", err)
		st := b.Status()
		testkit.ErrorIf(t, st.Cause != session.CauseReleased || len(b.Board().Load().Sources) != 0, "status %+v, %d sources", st, len(b.Board().Load().Sources))
		l.Set(func() { delete(l.Hang, "a") })
		close(hang)
		pass(time.Second)
		testkit.Equal(t, "the library is held although the call has returned", false, l.Held())
		b.change(resume)
	})
}

// A missing GPU is absent; the others keep their numbers.
func TestInventory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := sessiontest.New(t, "a", "b", "c")
		b := start(t, l, Options{Session: session.Options{RescanInterval: 5 * time.Second}})
		pass(12 * time.Second)
		numbers := func(want string) {
			t.Helper()
			var got []string
			for _, s := range b.Board().Load().Sources {
				got = append(got, s.Devices[0].ID+s.Devices[0].GPU)
			}
			testkit.Equal(t, "page", want, strings.Join(got, " "))
		}
		expected := func(want int) {
			t.Helper()
			testkit.Equal(t, "devices that are expected", float64(want), value(t, b.Supervisor, "warpgauge_devices_expected"))
		}
		numbers("a0 b1 c2")
		l.Set(func() { l.IDs = []string{"a", "c"} }) // the driver calls them 0 and 1
		pass(12 * time.Second)
		numbers("a0 c2 b1")
		expected(3)
		if st := b.state("b"); st.State != session.Absent || st.Cause != session.CauseVanished || st.Device.GPU != "1" || st.Device.PCIBusID != "bus b" || st.LastSample.IsZero() {
			t.Errorf("the GPU that is gone is %+v", st)
		}
		b.change(setList(list(2))) // a reload does not change that
		numbers("a0 c2 b1")
		expected(3)
		testkit.Equal(t, "warnings that it is absent", 1, b.count("device has disappeared"))
		l.Set(func() { l.IDs = []string{"a", "b", "c"} })
		pass(12 * time.Second)
		numbers("a0 b1 c2")
		st := b.state("b")
		testkit.ErrorIf(t, st.State != session.Up || b.count("device is back") != 1, "the GPU that is back is %+v", st)
		// A released GPU is not missing; it is when the release ends.
		b.change(release)
		expected(3)
		l.Set(func() { l.IDs = []string{"b", "c"} })
		b.change(resume)
		numbers("b1 c2")
		testkit.Equal(t, "the GPU that went while it was released", session.Absent, b.state("a").State)
		pass(absentFor + time.Minute)
		expected(2)
	})
}

// A list is refused after maxKilled kills with it, however many there were with the list before.
func TestKillsAreCountedByList(t *testing.T) {
	s := New(Wanted{}, Options{Name: "x"})
	s.goodList = 1
	for i, list := range []uint64{2, 2, 3, 3, 3} {
		if s.failed(&request{lists: list}, list, ending{reason: ReasonSignal}, nil); (s.refused == 3) != (i == 4) {
			t.Errorf("list %d is refused after kill %d, want list 3 after its third", s.refused, i+1)
		}
	}
}
