package session

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/view"
)

func TestSamplesOnTheGrid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, 3)
		s := start(t, n.factory, oneField, Options{})
		time.Sleep(10*time.Second - time.Millisecond)
		synctest.Wait()
		if st := s.Status(); !st.Up || st.Name != "scripted" || len(st.Devices) != 3 {
			t.Errorf("status is %+v, want three devices that are up", st)
		}
		for _, src := range s.Sources() {
			if got := src.Ring.Head(); got != 11 {
				t.Errorf("%s: %d rows in 10 s of 1 s ticks, want 11", src.Devices[0].ID, got)
			}
			var row ring.Row
			if !src.Ring.Latest(&row) || row.Cells[0] != 42 || time.Now().UnixNano()-row.Stamps[0] > int64(time.Second) {
				t.Errorf("%s: latest row is %+v, want 42, under a tick old", src.Devices[0].ID, row)
			}
		}
		if _, err := s.stop(); err != nil {
			t.Errorf("Run returned %v", err)
		}
		if want := []string{"open", "close"}; !slices.Equal(n.calls, want) {
			t.Errorf("calls were %v, want %v", n.calls, want)
		}
	})
}

// Run returns after every call has, however long that takes, and closes after that.
func TestRunWaitsForCalls(t *testing.T) {
	f := func(name string, wait time.Duration, prepare func(n *node)) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t, 2)
				s := start(t, n.factory, oneField, Options{RescanInterval: 1500 * time.Millisecond})
				n.set(func() { prepare(n) })
				time.Sleep(2 * time.Second)
				took, err := s.stop()
				if took != wait || err != nil || n.closes != 1 {
					t.Errorf("Run took %v to end, returned %v and closed %d times, want %v, no error and once", took, err, n.closes, wait)
				}
			})
		})
	}
	f("no call in progress", 0, func(*node) {})
	f("a slow call", 8*time.Second+333333333*time.Nanosecond, func(n *node) { n.devices[0].takes = 10 * time.Second })
	f("a call that hangs", time.Minute, func(n *node) {
		hang := make(chan struct{})
		n.devices[1].hang = hang
		time.AfterFunc(time.Minute+2*time.Second, func() { close(hang) })
	})
	f("a scan, which is cancelled", time.Millisecond, func(n *node) { n.scanFor = time.Hour })
}

func TestCancelledOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, 1)
		n.openFor = time.Hour
		s := start(t, n.factory, oneField, Options{})
		if st := s.Status(); st.Up || st.Cause != CauseOpening || s.Sources() != nil {
			t.Errorf("while it is opened the status is %+v", st)
		}
		if took, err := s.stop(); took != 0 || err != nil || n.closes != 0 {
			t.Errorf("Run took %v to end and returned %v, want no time and no error", took, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, 1)
		n.openFor = time.Hour
		s := start(t, n.factory, oneField, Options{})
		if err := <-s.ended; err == nil || s.at.Sub(s.born) != OpenTimeout {
			t.Errorf("Run returned %v after %v, want an error after %v", err, s.at.Sub(s.born), OpenTimeout)
		}
	})
}

func TestWhatOpenReturns(t *testing.T) {
	f := func(name string, prepare func(n *node, o *Options), want error, cause Cause, closes int) {
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
				s := start(t, n.factory, fields, o)
				err, ended := s.hasEnded()
				if !ended || !errors.Is(err, want) || CauseOf(err) != cause || n.closes != closes {
					t.Errorf("Run: %v, %v, cause %q, closed %d times, want %v, %q and %d", ended, err, CauseOf(err), n.closes, want, cause, closes)
				}
				if s.Sources() != nil {
					t.Error("there are sources")
				}
			})
		})
	}
	none := errors.New("no memory")
	f("an error", func(n *node, _ *Options) { n.openErr = fmt.Errorf("x: %w", collector.ErrNotLoaded) }, collector.ErrNotLoaded, CauseNotLoaded, 0)
	f("outdated", func(n *node, _ *Options) { n.openErr = collector.ErrOutdated }, collector.ErrOutdated, CauseOutdated, 0)
	f("no source", func(n *node, _ *Options) { n.devices = nil }, collector.ErrNoDevices, CauseNoDevices, 1)
	f("no columns", func(*node, *Options) {}, collector.ErrNothingToRead, CauseNothing, 1)
	f("no id", func(n *node, _ *Options) { n.devices[0].id = "" }, collector.ErrNoDevices, CauseNoDevices, 1)
	f("no memory", func(_ *node, o *Options) {
		o.Memory = func(int) ([]atomic.Uint64, any, error) { return nil, nil, none }
	}, none, CauseError, 1)
}

func TestErrorOfClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, 1)
		n.closeErr = errors.New("busy")
		s := start(t, n.factory, oneField, Options{})
		if _, err := s.stop(); !errors.Is(err, n.closeErr) {
			t.Errorf("Run returned %v, want %v", err, n.closeErr)
		}
	})
}

// A device hangs: it alone is stalled, and no second call is made into it.
func TestHungCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, 2)
		s := start(t, n.factory, oneField, Options{Deadline: 3 * time.Second})
		time.Sleep(5 * time.Second)
		hang := make(chan struct{})
		n.set(func() { n.devices[0].hang = hang })
		time.Sleep(time.Minute)
		if st := s.state(t, "GPU-0"); st.State != Stalled || st.Cause != CauseHung || !strings.Contains(st.Reason, "not returned for") {
			t.Errorf("the device that hangs is %+v, want stalled by a hung call", st)
		}
		n.set(func() {
			if n.inside > 1 {
				t.Errorf("%d calls in progress, want 1", n.inside)
			}
			n.devices[0].hang = nil
		})
		if st := s.state(t, "GPU-1"); st.State != Up || time.Since(st.LastSample) > time.Second {
			t.Errorf("the other device is %+v, want up and fresh", st)
		}
		close(hang)
		time.Sleep(2 * time.Second)
		if st := s.state(t, "GPU-0"); st.State != Up {
			t.Errorf("after the call has returned the device is %+v, want up", st)
		}
		if got := s.Costs().Sources["GPU-0"].MissedTicks; got < 57 || got > 60 {
			t.Errorf("%v missed ticks in a minute, want about 59", got)
		}
		_, _ = s.stop()
	})
}

func TestFailuresBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, 1)
		s := start(t, n.plainFactory, oneField, Options{})
		time.Sleep(1500 * time.Millisecond)
		before := 0
		n.set(func() { before = n.devices[0].samples; n.devices[0].err = fmt.Errorf("x: %w", collector.ErrDeviceLost) })
		time.Sleep(5 * time.Minute)
		if st := s.state(t, "GPU-0"); st.State != Lost || st.Cause != CauseLost || time.Since(st.LastSample) < 5*time.Minute {
			t.Errorf("the lost device is %+v", st)
		}
		n.set(func() {
			if got := n.devices[0].samples - before; got < 12 || got > 20 {
				t.Errorf("%d calls into a lost device in five minutes, want about 16: one each 30 s in the end", got)
			}
			n.devices[0].err = nil
		})
		time.Sleep(maxBackOff)
		if st := s.state(t, "GPU-0"); st.State != Up || st.Reason != "" {
			t.Errorf("after it came back the device is %+v", st)
		}
		_, _ = s.stop()
	})
}

// Other devices or columns end a session, but not before ChangeSpacing.
func TestColumnsChangedEndsTheSession(t *testing.T) {
	f := func(name string, change func(n *node), at, ends time.Duration) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t, 2)
				s := start(t, n.factory, oneField, Options{RescanInterval: 10 * time.Second})
				time.Sleep(at)
				n.set(func() { change(n) })
				err := <-s.ended
				if life := s.at.Sub(s.born); !errors.Is(err, collector.ErrColumnsChanged) || CauseOf(err) != CauseChanged || life < ends || life >= ends+time.Second {
					t.Errorf("Run returned %v after %v, want ErrColumnsChanged after %v", err, life, ends)
				}
				if n.closes != 1 {
					t.Errorf("closed %d times", n.closes)
				}
			})
		})
	}
	sample := func(n *node) { n.devices[1].err = fmt.Errorf("MIG: %w", collector.ErrColumnsChanged) }
	severed := func(n *node) {
		n.devices[1].err = fmt.Errorf("%w: %w", collector.ErrColumnsChanged, collector.ErrNotLoaded)
	}
	f("a sample, early", sample, 2*time.Second, ChangeSpacing)
	f("a connection that is lost", severed, 2*time.Second, 2*time.Second)
	f("a sample, late", sample, time.Minute, time.Minute)
	f("a scan", func(n *node) { n.scanFound = true }, 25*time.Second, 30*time.Second)
	f("a scan after a loss", func(n *node) { n.scanFound, n.devices[0].err = true, collector.ErrDeviceLost }, 22*time.Second, 22*time.Second)
	f("a scan that fails", func(n *node) { n.scanErr = fmt.Errorf("x: %w", collector.ErrColumnsChanged) }, 25*time.Second, 30*time.Second)
}

func TestOutdatedEndsTheSessionAtOnce(t *testing.T) {
	f := func(name string, change func(n *node), ends time.Duration) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t, 2)
				s := start(t, n.factory, oneField, Options{RescanInterval: 4 * time.Second})
				n.set(func() { change(n) })
				err := <-s.ended
				if life := s.at.Sub(s.born); !errors.Is(err, collector.ErrOutdated) || life > ends {
					t.Errorf("Run returned %v after %v, want ErrOutdated within %v", err, life, ends)
				}
			})
		})
	}
	outdated := fmt.Errorf("x: %w", collector.ErrOutdated)
	f("a sample", func(n *node) { n.devices[1].err = outdated }, time.Second)
	f("a sample of one device", func(n *node) { n.devices[1].err = &collector.DeviceError{Err: outdated} }, time.Second)
	f("a scan", func(n *node) { n.scanErr = outdated }, 4*time.Second)
}

func TestScans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, 2)
		s := start(t, n.factory, oneField, Options{RescanInterval: 10 * time.Second})
		time.Sleep(35 * time.Second)
		n.set(func() {
			if n.scans != 3 {
				t.Errorf("%d scans in 35 s, want one each 10 s", n.scans)
			}
			n.scanErr = errors.New("no")
		})
		time.Sleep(10 * time.Second)
		if got := s.Costs().RescanErrors; got != 1 {
			t.Errorf("%v scans have failed, want 1", got)
		}
		hang := make(chan struct{})
		n.set(func() { n.scanHang = hang }) // one that does not return has no second
		time.Sleep(2 * time.Minute)
		n.set(func() {
			if n.scans != 5 || n.inside != 1 {
				t.Errorf("%d scans, %d in progress, want 5 and 1", n.scans, n.inside)
			}
		})
		time.AfterFunc(time.Minute, func() { close(hang) })
		_, _ = s.stop()
	})
}

func TestRowsAreInTheMemoryThatIsGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, 2)
		var mem []atomic.Uint64
		var published [][]*view.Source
		s := start(t, n.factory, oneField, Options{
			Memory: func(words int) ([]atomic.Uint64, any, error) {
				mem = make([]atomic.Uint64, words)
				return mem, &mem, nil
			},
			Publish: func(sources []*view.Source) { published = append(published, sources) },
		})
		time.Sleep(3 * time.Second)
		if len(published) != 1 || !slices.Equal(published[0], s.Sources()) {
			t.Fatalf("published %d times", len(published))
		}
		_, _ = s.stop()
		at := 0
		for _, src := range published[0] {
			words := ring.Words(src.Ring.Rows(), 1, 1)
			r, err := ring.Attach(mem[at:at+words], src.Ring.Rows(), 1, 1)
			if err != nil || r.Head() != src.Ring.Head() || r.Head() < 3 {
				t.Errorf("the ring of %s in the memory: %v", src.Devices[0].ID, err)
			}
			at += words
		}
		if at != len(mem) {
			t.Errorf("%d words were asked for, %d are used", len(mem), at)
		}
	})
}

// When a session ends, events since the last tick are read once more: the next one
// does not see them.
func TestLastRowHasEvents(t *testing.T) {
	xid, ok := field.ByID(field.XIDEvent)
	last, known := field.ByID(field.XIDErrors)
	if !ok || !known {
		t.Fatal("the catalogue has no XID event")
	}
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, 1)
		s := start(t, n.factory, list(desc(60001, field.EachTick), xid, last), Options{})
		time.Sleep(2300 * time.Millisecond) // between two ticks
		n.set(func() { n.devices[0].value = 79 })
		if _, err := s.stop(); err != nil {
			t.Error(err)
		}
		var row ring.Row
		if !s.Sources()[0].Ring.Latest(&row) || row.Cells[1] != 79 || row.Cells[2] != 79 || row.Cells[0] != 42 {
			t.Errorf("the last row is %v, want the value of before, the event and the last XID", row.Cells)
		}
	})
}
