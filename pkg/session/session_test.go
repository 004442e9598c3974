package session

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/session/sessiontest"
	"warpgauge/pkg/view"
)

func TestSamplesOnTheGrid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, 3)
		s := start(t, n.Open, oneField, Options{})
		time.Sleep(10*time.Second - time.Millisecond)
		synctest.Wait()
		st := s.Status()
		testkit.ErrorIf(t, !st.Up || st.Name != "scripted" || len(st.Devices) != 3, "status is %+v, want three devices that are up", st)
		for _, src := range s.Sources() {
			testkit.Equal(t, src.Devices[0].ID+": rows in 10 s of 1 s ticks", uint64(11), src.Ring.Head())
			var row ring.Row
			if !src.Ring.Latest(&row) || row.Cells[0] != 42 || time.Now().UnixNano()-row.Stamps[0] > int64(time.Second) {
				t.Errorf("%s: latest row is %+v, want 42, under a tick old", src.Devices[0].ID, row)
			}
		}
		testkit.Get(s.stop())(t)
		testkit.Equal(t, "calls of Open and Close", [2]int{1, 1}, [2]int{n.Opens, n.Closes})
	})
}

// Run returns after every call has returned, and then closes the library.
func TestRunWaitsForCalls(t *testing.T) {
	f := func(name string, wait time.Duration, prepare func(n *sessiontest.Library)) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t, 2)
				s := start(t, n.Open, oneField, Options{RescanInterval: 1500 * time.Millisecond})
				n.Set(func() { prepare(n) })
				time.Sleep(2 * time.Second)
				took, err := s.stop()
				if took != wait || err != nil || n.Closes != 1 {
					t.Errorf("Run took %v to end, returned %v and closed %d times, want %v, no error and once", took, err, n.Closes, wait)
				}
			})
		})
	}
	f("no call in progress", 0, func(*sessiontest.Library) {})
	f("a slow call", 8*time.Second+333333333*time.Nanosecond, func(n *sessiontest.Library) { n.Takes["GPU-0"] = 10 * time.Second })
	f("a call that hangs", time.Minute, func(n *sessiontest.Library) {
		hang := make(chan struct{})
		n.Hang["GPU-1"] = hang
		time.AfterFunc(time.Minute+2*time.Second, func() { close(hang) })
	})
	f("a scan, which is cancelled", time.Millisecond, func(n *sessiontest.Library) { n.ScanFor = time.Hour })
}

func TestCancelledOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, 1)
		n.OpenFor = time.Hour
		s := start(t, n.Open, oneField, Options{})
		st := s.Status()
		testkit.ErrorIf(t, st.Up || st.Cause != CauseOpening || s.Sources() != nil, "while it is opened the status is %+v", st)
		took, err := s.stop()
		testkit.ErrorIf(t, took != 0 || err != nil || n.Closes != 0, "Run took %v to end and returned %v, want no time and no error", took, err)
	})
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, 1)
		n.OpenFor = time.Hour
		s := start(t, n.Open, oneField, Options{})
		err := <-s.ended
		testkit.ErrorIf(t, err == nil || s.at.Sub(s.born) != OpenTimeout, "Run returned %v after %v, want an error after %v", err, s.at.Sub(s.born), OpenTimeout)
	})
}

func TestWhatOpenReturns(t *testing.T) {
	f := func(name string, prepare func(n *sessiontest.Library, o *Options), want error, cause Cause, closes int) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t, 1)
				var o Options
				fields := oneField
				prepare(n, &o)
				if name == "no columns" {
					fields = field.List{}
				}
				s := start(t, n.Open, fields, o)
				err, ended := s.hasEnded()
				if !ended || !errors.Is(err, want) || CauseOf(err) != cause || n.Closes != closes {
					t.Errorf("Run: %v, %v, cause %q, closed %d times, want %v, %q and %d", ended, err, CauseOf(err), n.Closes, want, cause, closes)
				}
				testkit.Equal(t, "sources", 0, len(s.Sources()))
			})
		})
	}
	none := errors.New("no memory")
	f("an error", func(n *sessiontest.Library, _ *Options) {
		n.OpenErr = func(field.List) error { return fmt.Errorf("x: %w", collector.ErrNotLoaded) }
	}, collector.ErrNotLoaded, CauseNotLoaded, 0)
	f("outdated", func(n *sessiontest.Library, _ *Options) {
		n.OpenErr = func(field.List) error { return collector.ErrOutdated }
	}, collector.ErrOutdated, CauseOutdated, 0)
	f("no source", func(n *sessiontest.Library, _ *Options) { n.IDs = nil }, collector.ErrNoDevices, CauseNoDevices, 1)
	f("no columns", func(*sessiontest.Library, *Options) {}, collector.ErrNothingToRead, CauseNothing, 1)
	f("no id", func(n *sessiontest.Library, _ *Options) { n.IDs[0] = "" }, collector.ErrNoDevices, CauseNoDevices, 1)
	f("no memory", func(_ *sessiontest.Library, o *Options) { o.Parent = &parent{err: none} }, none, CauseError, 1)
}

// When a device hangs, it alone is stalled, and the session makes no second call into it.
func TestHungCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, 2)
		s := start(t, n.Open, oneField, Options{Deadline: 3 * time.Second})
		time.Sleep(5 * time.Second)
		hang := make(chan struct{})
		n.Set(func() { n.Hang["GPU-0"] = hang })
		time.Sleep(52 * time.Second)
		if st := s.state(t, "GPU-0"); st.State != Stalled || st.Cause != CauseHung || !strings.Contains(st.Reason, "not returned since") {
			t.Errorf("the device that hangs is %+v, want stalled by a hung call", st)
		}
		answers := func(yes bool, want Cause) {
			t.Helper()
			n.Set(func() { n.Answers = yes })
			time.Sleep(4 * time.Second)
			st := s.state(t, "GPU-0")
			testkit.ErrorIf(t, st.State != Stalled || st.Cause != want, "while other calls succeed (%v): %+v, want %s", yes, st, want)
		}
		answers(true, CauseOneCall)
		answers(false, CauseHung)
		n.Set(func() {
			testkit.AtMost(t, "calls in progress", 1, n.Inside)
			n.Hang["GPU-0"] = nil
		})
		st := s.state(t, "GPU-1")
		testkit.ErrorIf(t, st.State != Up || time.Since(st.LastSample) > time.Second, "the other device is %+v, want up and fresh", st)
		close(hang)
		time.Sleep(2 * time.Second)
		testkit.Equal(t, "state after the call has returned", Up, s.state(t, "GPU-0").State)
		testkit.Between(t, "missed ticks in a minute, about 59", 57, 60, s.Costs().Sources["GPU-0"].MissedTicks)
	})
}

// While a call hangs, a session that no process holds does not end for a change: the other devices would have no values.
func TestAChangeWhileADeviceHangs(t *testing.T) {
	for name, o := range map[string]Options{"in this process": {}, "in a child": {Parent: &parent{}}} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t, 2)
			o.RescanInterval = 10 * time.Second
			s := start(t, n.Open, oneField, o)
			time.Sleep(9 * time.Second)
			hang := make(chan struct{})
			n.Set(func() { n.Hang["GPU-0"], n.ScanFound = hang, true })
			time.Sleep(time.Minute)
			alone := o.Parent == nil
			st := s.state(t, "GPU-1")
			testkit.ErrorIf(t, (st.State == Up && time.Since(st.LastSample) <= time.Second) != alone, "%s: the other device is %+v", name, st)
			close(hang)
			if err := <-s.ended; !errors.Is(err, collector.ErrColumnsChanged) || alone && s.at.Sub(s.born) > 69*time.Second+2*lookEvery {
				t.Errorf("%s: ended with %v after %v", name, err, s.at.Sub(s.born))
			}
		})
	}
}

func TestFailuresBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, 1)
		s := start(t, func() collector.Collector { return struct{ collector.Collector }{n.Open()} }, oneField, Options{})
		time.Sleep(1500 * time.Millisecond)
		before := 0
		n.Set(func() { before = n.Samples["GPU-0"]; n.Failure["GPU-0"] = fmt.Errorf("x: %w", collector.ErrDeviceLost) })
		time.Sleep(5 * time.Minute)
		st := s.state(t, "GPU-0")
		testkit.ErrorIf(t, st.State != Lost || st.Cause != CauseLost || time.Since(st.LastSample) < 5*time.Minute, "the lost device is %+v", st)
		n.Set(func() {
			testkit.Between(t, "calls into a lost device in five minutes, about 16: one each 30 s in the end", 12, 20, n.Samples["GPU-0"]-before)
			n.Failure["GPU-0"] = nil
		})
		time.Sleep(maxBackOff)
		st = s.state(t, "GPU-0")
		testkit.ErrorIf(t, st.State != Up || st.Reason != "", "after it came back the device is %+v", st)
	})
}

// A change of devices or columns ends a session, but not before ChangeSpacing. A library that no longer fits the driver
// ends it at once.
func TestWhatEndsASession(t *testing.T) {
	f := func(name string, want error, change func(n *sessiontest.Library), at, ends time.Duration) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t, 2)
				s := start(t, n.Open, oneField, Options{RescanInterval: 10 * time.Second})
				time.Sleep(at)
				n.Set(func() { change(n) })
				err := <-s.ended
				if life := s.at.Sub(s.born); !errors.Is(err, want) || CauseOf(err) != CauseOf(want) || life < ends || life >= ends+time.Second {
					t.Errorf("Run returned %v after %v, want %v after %v", err, life, want, ends)
				}
				testkit.Equal(t, "calls of Close", 1, n.Closes)
			})
		})
	}
	changed, outdated := collector.ErrColumnsChanged, fmt.Errorf("x: %w", collector.ErrOutdated)
	f("an outdated sample", collector.ErrOutdated, func(n *sessiontest.Library) { n.Failure["GPU-1"] = outdated }, time.Second/2, time.Second/2)
	f("an outdated sample of one device", collector.ErrOutdated, func(n *sessiontest.Library) {
		n.Failure["GPU-1"] = &collector.DeviceError{Err: outdated}
	}, time.Second/2, time.Second/2)
	f("an outdated scan", collector.ErrOutdated, func(n *sessiontest.Library) { n.ScanErr = outdated }, 0, 10*time.Second)
	sample := func(n *sessiontest.Library) { n.Failure["GPU-1"] = fmt.Errorf("MIG: %w", collector.ErrColumnsChanged) }
	severed := func(n *sessiontest.Library) {
		n.Failure["GPU-1"] = fmt.Errorf("%w: %w", collector.ErrColumnsChanged, collector.ErrNotLoaded)
	}
	f("a sample, early", changed, sample, time.Second, ChangeSpacing)
	f("a connection that is lost", changed, severed, 2*time.Second, 2*time.Second)
	f("a sample, late", changed, sample, time.Minute, time.Minute)
	f("a scan", changed, func(n *sessiontest.Library) { n.ScanFound = true }, 25*time.Second, 30*time.Second)
	f("a scan after a loss", changed, func(n *sessiontest.Library) { n.ScanFound, n.Failure["GPU-0"] = true, collector.ErrDeviceLost }, 22*time.Second, 22*time.Second)
	f("a scan that fails", changed, func(n *sessiontest.Library) { n.ScanErr = fmt.Errorf("x: %w", collector.ErrColumnsChanged) }, 25*time.Second, 30*time.Second)
}

func TestScans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, 2)
		s := start(t, n.Open, oneField, Options{RescanInterval: 10 * time.Second})
		time.Sleep(35 * time.Second)
		n.Set(func() {
			testkit.Equal(t, "scans in 35 s, one each 10 s", 3, n.Scans)
			n.ScanErr = errors.New("no")
		})
		time.Sleep(10 * time.Second)
		testkit.Equal(t, "scans that have failed", uint64(1), s.Costs().RescanErrors)
		hang := make(chan struct{})
		n.Set(func() { n.ScanHang = hang }) // a call that does not return is not repeated
		time.Sleep(2 * time.Minute)
		n.Set(func() {
			testkit.Equal(t, "scans, and those in progress", [2]int{5, 1}, [2]int{n.Scans, n.Inside})
		})
		time.AfterFunc(time.Minute, func() { close(hang) })
		_, _ = s.stop()
	})
}

// parent is a Parent that records its memory and the sources.
type parent struct {
	mem       []atomic.Uint64
	published [][]*view.Source
	err       error // of Memory
}

func (p *parent) Memory(words int) ([]atomic.Uint64, any, error) {
	p.mem = make([]atomic.Uint64, words)
	return p.mem, p, p.err
}

func (p *parent) Publish(sources []*view.Source) { p.published = append(p.published, sources) }

// When a session ends, it reads the events since the last tick once more, because the next session does not see them.
func TestLastRowHasEvents(t *testing.T) {
	xid, ok := field.ByID(field.XIDEvent)
	last, known := field.ByID(field.XIDErrors)
	testkit.FatalIf(t, !ok || !known, "the catalogue has no XID event")
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, 1)
		s := start(t, n.Open, list(desc(60001, field.EachTick), xid, last), Options{})
		time.Sleep(2300 * time.Millisecond) // between two ticks
		n.Set(func() { n.Value["GPU-0"] = 79 })
		testkit.Get(s.stop())(t)
		var row ring.Row
		if !s.Sources()[0].Ring.Latest(&row) || row.Cells[1] != 79 || row.Cells[2] != 79 || row.Cells[0] != 42 {
			t.Errorf("the last row is %v, want the value of before, the event and the last XID", row.Cells)
		}
	})
}
