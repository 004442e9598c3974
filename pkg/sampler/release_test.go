package sampler

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/pkg/collector"
)

func (n *node) counts() (opens, live int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.opens, n.live
}

func (n *node) set(f func(*node)) { n.mu.Lock(); f(n); n.mu.Unlock() }

func TestReleaseLetsGoAndResumeOpensAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		n := newNode(2)
		s := start(t, n, oneField, Options{Logger: zap.New(core)})
		time.Sleep(3500 * time.Millisecond)
		begin := time.Now()
		for range 2 { // again is no different
			if err := s.Release(t.Context(), "scripted"); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("released after %v, want at once: no call is in progress", took)
		}
		if _, live := n.counts(); live != 0 {
			t.Errorf("%d collectors open after Release", live)
		}
		if got := len(s.Board().Load().Sources); got != 0 {
			t.Errorf("%d sources on the board after Release", got)
		}
		calls := n.devices[0].calls.Load()
		opens, _ := n.counts()
		time.Sleep(5 * time.Minute)
		if now, _ := n.counts(); now != opens || n.devices[0].calls.Load() != calls {
			t.Errorf("%d opens and %d calls while released", now-opens, n.devices[0].calls.Load()-calls)
		}
		st := s.Status()[0]
		if st.Up || st.Cause != CauseReleased || len(st.Devices) != 2 || st.Devices[1].State != Released || st.Devices[1].Cause != CauseReleased {
			t.Errorf("status %+v, want two released devices", st)
		}
		if err := s.Resume(""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		if st := stateOf(t, s, "GPU-0"); st.State != Up || sourceOf(t, s, "GPU-0").Ring.Head() == 0 {
			t.Errorf("%+v after Resume", st)
		}
		time.Sleep(2 * time.Second)
		if all := logs.FilterMessageSnippet("device"); all.Len() != 0 {
			t.Errorf("logged %v, want a line for the collector only", all.All())
		}
		for _, text := range []string{"collector is let go", "collector is resumed"} {
			if got := logs.FilterMessage(text).Len(); got != 1 {
				t.Errorf("logged %q %d times", text, got)
			}
		}
		if now, _ := n.counts(); now != opens+1 {
			t.Errorf("opened %d times after Resume, want once", now-opens)
		}
		if err := s.Resume(""); err != nil { // nothing to resume
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if now, _ := n.counts(); now != opens+1 {
			t.Errorf("opened %d times, want once", now-opens)
		}
	})
}

func TestReleaseWaitsForCallsAndNamesThoseThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(2)
		s := start(t, n, oneField, Options{Deadline: 2 * time.Second})
		time.Sleep(1500 * time.Millisecond)
		hang := make(chan struct{})
		n.devices[1].set(func(d *device) { d.hang = hang })
		time.Sleep(3 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err := s.Release(ctx, "")
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "GPU-1") || strings.Contains(err.Error(), "GPU-0") {
			t.Errorf("got %v, want the end of the context and GPU-1", err)
		}
		if got := len(s.Board().Load().Sources); got != 0 {
			t.Errorf("%d sources on the board", got)
		}
		if st := stateOf(t, s, "GPU-1"); st.State != Stalled || st.Cause != CauseHung {
			t.Errorf("%+v, want it to be told that it hangs", st)
		}
		if st := stateOf(t, s, "GPU-0"); st.State != Released {
			t.Errorf("%+v, want it released", st)
		}
		again := make(chan error, 1)
		go func() { again <- s.Release(t.Context(), "") }()
		time.Sleep(time.Second)
		close(hang)
		if err := <-again; err != nil {
			t.Errorf("after the call has returned: %v", err)
		}
		if _, live := n.counts(); live != 0 {
			t.Errorf("%d collectors open", live)
		}
	})
}

func TestReleaseDuringOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(1)
		hold := make(chan struct{})
		n.hold = hold
		s := start(t, n, oneField, Options{})
		time.Sleep(time.Second)
		done := make(chan error, 1)
		go func() { done <- s.Release(t.Context(), "") }()
		time.Sleep(time.Second)
		select {
		case err := <-done:
			t.Fatalf("released (%v) while an Open was in progress", err)
		default:
		}
		n.set(func(n *node) { n.hold = nil })
		close(hold)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if opens, live := n.counts(); opens != 1 || live != 0 {
			t.Errorf("%d opens, %d left open", opens, live)
		}
	})
}

// TestReloadDuringARelease: it is answered at once and heeded at the end.
func TestReloadDuringARelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(1)
		s := start(t, n, oneField, Options{})
		time.Sleep(time.Second)
		if err := s.Release(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		two := oneField
		two.Fields = append(two.Fields[:1:1], list(desc(60002, 0)).Fields...)
		if err := s.Reload(t.Context(), two); err != nil {
			t.Error(err)
		}
		if opens, live := n.counts(); opens != 1 || live != 0 {
			t.Errorf("%d opens, %d open while released", opens, live)
		}
		if err := s.Resume("scripted"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if got := len(sourceOf(t, s, "GPU-0").Columns); got != 2 {
			t.Errorf("%d columns after Resume, want those of the new list", got)
		}
	})
}

// TestReleaseDuringAReload: the binding that is about to take over goes, too.
func TestReleaseDuringAReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(1)
		s := start(t, n, oneField, Options{})
		time.Sleep(1100 * time.Millisecond)
		n.devices[0].set(func(d *device) { d.delay = 300 * time.Millisecond }) // the second has no rows yet
		reloaded := make(chan error, 1)
		go func() { reloaded <- s.Reload(t.Context(), oneField) }()
		time.Sleep(10 * time.Millisecond)
		if err := s.Release(t.Context(), ""); err != nil {
			t.Error(err)
		}
		if err := <-reloaded; err != nil {
			t.Errorf("reload: %v", err)
		}
		if opens, live := n.counts(); opens != 2 || live != 0 {
			t.Errorf("%d opens, %d left open", opens, live)
		}
		time.Sleep(time.Minute)
		if got := len(s.Board().Load().Sources); got != 0 {
			t.Errorf("%d sources on the board", got)
		}
	})
}

// TestReleaseOfACollectorThatIsNotOpen forgets when it was to be tried again.
func TestReleaseOfACollectorThatIsNotOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(1)
		n.openErr = collector.ErrNotLoaded
		s := start(t, n, oneField, Options{})
		time.Sleep(4 * time.Second) // the next attempt is due at 7 s
		if err := s.Release(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		n.set(func(n *node) { n.openErr = nil })
		opens, _ := n.counts()
		if err := s.Resume(""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if now, live := n.counts(); now != opens+1 || live != 1 {
			t.Errorf("opened %d times since, %d open, want once", now-opens, live)
		}
	})
}

func TestReleaseOfAnUnknownCollector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, newNode(1), oneField, Options{})
		if err := s.Release(t.Context(), "other"); err == nil || !strings.Contains(err.Error(), `"other"`) {
			t.Errorf("Release: %v", err)
		}
		if err := s.Resume("other"); err == nil {
			t.Error("Resume of an unknown collector succeeded")
		}
	})
}

// TestABoardThatIsGoneAfterARelease is told, as after a rediscovery.
func TestABoardThatIsGoneAfterARelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(2)
		s := start(t, n, oneField, Options{})
		time.Sleep(time.Second)
		if err := s.Release(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		n.set(func(n *node) { n.devices = n.devices[:1] })
		if err := s.Resume(""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if st := stateOf(t, s, "GPU-1"); st.State != Lost || st.Cause != CauseVanished {
			t.Errorf("%+v, want it to be told as vanished", st)
		}
	})
}

func TestOutdatedIsClosedBeforeItIsOpenedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(2)
		s := start(t, n, oneField, Options{})
		time.Sleep(1500 * time.Millisecond)
		for _, d := range n.devices {
			d.set(func(d *device) { d.err = collector.ErrOutdated })
		}
		n.set(func(n *node) { n.openErr = collector.ErrOutdated })
		time.Sleep(3 * time.Second)
		opens, live := n.counts()
		if live != 0 || opens < 2 {
			t.Errorf("%d opens, %d open: want it closed, and tried again", opens, live)
		}
		st := s.Status()[0]
		if st.Up || st.Cause != CauseOutdated || len(st.Devices) != 2 || st.Devices[0].State != Stalled || st.Devices[0].Cause != CauseOutdated {
			t.Errorf("status %+v, want devices that are stalled for that cause", st)
		}
		for _, d := range n.devices {
			d.set(func(d *device) { d.err = nil })
		}
		n.set(func(n *node) { n.openErr = nil })
		time.Sleep(10 * time.Second)
		if st := stateOf(t, s, "GPU-0"); st.State != Up {
			t.Errorf("%+v after the driver is back", st)
		}
	})
}

func TestOutdatedOfAReplaceableProcessIsToldOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(1)
		s := start(t, n, oneField, Options{Replaceable: true})
		time.Sleep(1500 * time.Millisecond)
		n.devices[0].set(func(d *device) { d.err = collector.ErrOutdated })
		time.Sleep(5 * time.Second)
		if opens, live := n.counts(); opens != 1 || live != 1 {
			t.Errorf("%d opens, %d open: want it left as it is", opens, live)
		}
		if st := s.Status()[0]; !st.Up || st.Cause != CauseOutdated {
			t.Errorf("status %+v", st)
		}
	})
}

// TestNothingToReadKeepsNothingOpen: a list without anything for the collector is
// served by closing it.
func TestNothingToReadKeepsNothingOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(1)
		s := start(t, n, oneField, Options{})
		time.Sleep(1500 * time.Millisecond)
		n.set(func(n *node) { n.openErr = collector.ErrNothingToRead })
		if err := s.Reload(t.Context(), oneField); err != nil {
			t.Errorf("reload: %v", err)
		}
		synctest.Wait()
		if _, live := n.counts(); live != 0 {
			t.Errorf("%d open", live)
		}
		if st := s.Status()[0]; st.Up || st.Cause != CauseNothing || len(st.Devices) != 0 {
			t.Errorf("status %+v", st)
		}
		opens, _ := n.counts()
		time.Sleep(10 * time.Minute)
		if now, _ := n.counts(); now-opens > 10 {
			t.Errorf("opened %d times in 10 minutes, want at most once a minute", now-opens)
		}
		n.set(func(n *node) { n.openErr = nil })
		if err := s.Reload(t.Context(), oneField); err != nil {
			t.Error(err)
		}
		if got := len(s.Board().Load().Sources); got != 1 {
			t.Errorf("%d sources after a list that asks for something", got)
		}
	})
}

// TestAReleaseRightAfterAResumeIsARelease: the end of one wish must not be taken for
// the answer to the next.
func TestAReleaseRightAfterAResumeIsARelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(1)
		s := start(t, n, oneField, Options{})
		for i := range 20_000 {
			if err := s.Resume(""); err != nil {
				t.Fatal(err)
			}
			for range i % 64 { // at other moments of the keeper's waking each time
				runtime.Gosched()
			}
			if err := s.Release(t.Context(), ""); err != nil {
				t.Fatalf("release %d: %v", i, err)
			}
		}
	})
}
