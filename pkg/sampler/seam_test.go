package sampler

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/view"
)

// rings is a NewRing that notes what it made and refuses when told to.
type rings struct {
	mu   sync.Mutex
	err  error
	hold chan struct{}
	made map[*ring.Ring]string // id of the source's first device
}

func (r *rings) make(src collector.Source, rows int) (*ring.Ring, error) {
	r.mu.Lock()
	err, hold := r.err, r.hold
	r.mu.Unlock()
	if hold != nil {
		<-hold
	}
	if err != nil {
		return nil, err
	}
	made := ring.Make(rows, len(src.Devices()), len(src.Columns()))
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.made == nil {
		r.made = make(map[*ring.Ring]string)
	}
	r.made[made] = src.Devices()[0].ID
	return made, nil
}

func (r *rings) set(f func(*rings)) { r.mu.Lock(); f(r); r.mu.Unlock() }

func TestRowsGoIntoTheRingsOfNewRing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r rings
		s := start(t, newNode(2), oneField, Options{NewRing: r.make})
		time.Sleep(3500 * time.Millisecond)
		for _, id := range []string{"GPU-0", "GPU-1"} {
			src := sourceOf(t, s, id)
			if r.made[src.Ring] != id || src.Ring.Head() < 3 {
				t.Errorf("the ring of %s was made for %q and has %d rows", id, r.made[src.Ring], src.Ring.Head())
			}
		}
	})
}

func TestRefusedRingIsAFailedOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rings{err: errors.New("no memory")}
		n := newNode(2)
		s := start(t, n, oneField, Options{NewRing: r.make})
		time.Sleep(5 * time.Second)
		if st := s.Status()[0]; st.Up || !strings.Contains(st.Reason, "no memory") || !strings.Contains(st.Reason, "GPU-0") {
			t.Errorf("status is %+v, want a collector that is down for want of memory", st)
		}
		n.mu.Lock()
		opens, live := n.opens, n.live
		n.mu.Unlock()
		if live != 0 {
			t.Errorf("%d collectors were left open", live)
		}
		if opens < 2 {
			t.Errorf("opened %d times, want a retry", opens)
		}
		r.set(func(r *rings) { r.err = nil })
		time.Sleep(10 * time.Second)
		if st := s.Status()[0]; !st.Up {
			t.Errorf("status is %+v after there was memory again", st)
		}
	})
}

func TestRingOfOtherDimensionsIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := start(t, newNode(1), oneField, Options{NewRing: func(src collector.Source, rows int) (*ring.Ring, error) {
			return ring.Make(rows, len(src.Devices()), len(src.Columns())+1), nil
		}})
		time.Sleep(time.Second)
		if st := s.Status()[0]; st.Up || !strings.Contains(st.Reason, "2 cells for 1 devices and 1 columns") {
			t.Errorf("status is %+v", st)
		}
	})
}

// TestReloadThatGetsNoRingKeepsTheOld covers make before break: what is in
// service goes on while the ring of its successor is refused.
func TestReloadThatGetsNoRingKeepsTheOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r rings
		s := start(t, newNode(1), oneField, Options{NewRing: r.make})
		time.Sleep(time.Second)
		was := sourceOf(t, s, "GPU-0")
		r.set(func(r *rings) { r.err = errors.New("no memory") })
		if err := s.Reload(t.Context(), oneField); err == nil || !strings.Contains(err.Error(), "no memory") {
			t.Errorf("reload: %v", err)
		}
		before := was.Ring.Head()
		time.Sleep(3 * time.Second)
		if now := sourceOf(t, s, "GPU-0"); now != was || was.Ring.Head() < before+2 {
			t.Errorf("the old ring went from %d to %d rows", before, was.Ring.Head())
		}
	})
}

// TestSlowNewRingDelaysNobody: the parent of a child may be slow to answer.
func TestSlowNewRingDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r rings
		s := start(t, newNode(1), oneField, Options{NewRing: r.make})
		time.Sleep(time.Second)
		was := sourceOf(t, s, "GPU-0")
		hold := make(chan struct{})
		r.set(func(r *rings) { r.hold = hold })
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := s.Reload(ctx, oneField); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("reload: %v", err)
		}
		if got := was.Ring.Head(); got < 5 {
			t.Errorf("only %d rows while the ring was awaited", got)
		}
		close(hold)
		time.Sleep(2 * time.Second)
		if sourceOf(t, s, "GPU-0") == was {
			t.Error("the reload never came into service")
		}
	})
}

func TestOnPublishIsToldOfEachView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []*view.View
		s := start(t, newNode(2), oneField, Options{OnPublish: func(v *view.View) { told = append(told, v) }})
		time.Sleep(time.Second)
		synctest.Wait()
		if len(told) != 1 || told[0] != s.Board().Load() || len(told[0].Sources) != 2 {
			t.Fatalf("told of %d Views after the first Open", len(told))
		}
		if err := s.Reload(t.Context(), oneField); err != nil {
			t.Fatal(err)
		}
		if len(told) != 2 || told[1] != s.Board().Load() || told[1].Version <= told[0].Version {
			t.Errorf("told of %d Views after a reload", len(told))
		}
	})
}
