package kube

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// actor is a kubelet without a socket, for tests of time.
type actor struct {
	mu      sync.Mutex
	start   time.Time
	says    *v1.ListPodResourcesResponse // nil: silence
	fails   *failure                     // if not nil
	refuses *failure
	lists   []time.Duration // when lists began, since start
	dials   int
	open    int // connections that were not closed
}

// line is one connection to an actor.
type line struct{ *actor }

var _ lister = line{}

func (a *actor) dial(context.Context) (lister, *failure) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dials++
	if a.refuses != nil {
		return nil, a.refuses
	}
	a.open++
	return line{a}, nil
}

func (l line) list(ctx context.Context) (*v1.ListPodResourcesResponse, *failure) {
	l.mu.Lock()
	l.lists = append(l.lists, time.Since(l.start))
	says, fails := l.says, l.fails
	l.mu.Unlock()
	if fails != nil {
		return nil, fails
	}
	if says == nil {
		<-ctx.Done()
		return nil, fail(ReasonTimeout, "no answer")
	}
	return says, nil
}

func (l line) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
}

// set changes what the actor does.
func (a *actor) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

// took are the times since the last call.
func (a *actor) took(times *[]time.Duration) []time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := *times
	*times = nil
	return out
}

// stage is a Client with an actor, in a bubble of time.
type stage struct {
	*Kubelet
	*actor
	logs    *observer.ObservedLogs
	changes int
}

// act runs a test with a Client of a kubelet that says a/GPU-1.
func act(t *testing.T, test func(t *testing.T, s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		s := &stage{logs: logs, actor: &actor{start: time.Now(), says: listing(0, own("a", "GPU-1"))}}
		s.Kubelet = NewKubelet(KubeletOptions{Socket: "/none", Log: zap.New(core), OnChange: func() { s.changes++ }})
		s.connect = s.actor.dial
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		synctest.Wait()
		test(t, s)
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		if s.open != 0 {
			t.Errorf("%d connections left open", s.open)
		}
	})
}

// pass lets time pass, and all that happens at its end.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func seconds(s ...float64) (out []time.Duration) {
	for _, s := range s {
		out = append(out, time.Duration(s*float64(time.Second)))
	}
	return out
}

func TestSilenceOfAMinute(t *testing.T) {
	act(t, func(t *testing.T, s *stage) {
		pass(5 * time.Second)
		good := s.Snapshot()
		s.set(func() { s.says = nil })
		s.took(&s.lists)
		pass(time.Minute)
		if got := s.Snapshot(); got != good {
			t.Errorf("the snapshot is %v, want still %v", got, good)
		}
		if age := s.Health.State().Age; age != time.Minute {
			t.Errorf("age %v, want 1m", age)
		}
		if diff := cmp.Diff(seconds(10, 25, 40, 55), s.took(&s.lists)); diff != "" {
			t.Errorf("lists, 10 s long with 5 s between (-want +got):\n%s", diff)
		}
		if got := s.Health.State().Failing; got != ReasonTimeout {
			t.Errorf("failing for %q, want %q", got, ReasonTimeout)
		}
		if n := s.logs.FilterMessageSnippet("mapping failed").Len(); n != 1 {
			t.Errorf("%d lines in the log, want 1", n)
		}
		if s.dials != 2 {
			t.Errorf("%d connections, want another one after three calls without an answer", s.dials)
		}
		s.set(func() { s.says = listing(0, own("a", "GPU-1")) })
		pass(15 * time.Second)
		if got := s.Snapshot(); got.Version != good.Version || !got.Time.After(good.Time) || s.Health.State().Failing != "" {
			t.Errorf("after the silence: %v, failing %q", got, s.Health.State().Failing)
		}
		if s.changes != 1 {
			t.Errorf("%d changes were told, want 1", s.changes)
		}
	})
}

func TestWhenItLooks(t *testing.T) {
	act(t, func(t *testing.T, s *stage) {
		f := func(name string, want []time.Duration) {
			t.Helper()
			if diff := cmp.Diff(want, s.took(&s.lists)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
		pass(17 * time.Second)
		f("every five seconds", seconds(0, 5, 10, 15))
		s.PollSoon()
		synctest.Wait()
		f("at once after a request", seconds(17))
		pass(6500 * time.Millisecond)
		f("and a second later, then as before", seconds(18, 23))
		for range 100 { // from 23.5 s on
			s.PollSoon()
			pass(30 * time.Millisecond)
		}
		f("once a second, whatever is requested", seconds(24, 25, 26))
		pass(3500 * time.Millisecond) // 30 s
		f("the second look after the last request", seconds(27, 28))
	})
}

func TestRateLimitIsTriedAgainSoon(t *testing.T) {
	act(t, func(t *testing.T, s *stage) {
		pass(5 * time.Second)
		s.set(func() { s.fails = fail(ReasonRateLimited, "rejected by rate limit") })
		pass(5 * time.Second)
		s.took(&s.lists)
		pass(time.Minute)
		if n := len(s.took(&s.lists)); n < 30 || n > 60 {
			t.Errorf("%d lists in a minute, want one in one to two seconds", n)
		}
		if names := names(s.Snapshot()); len(names) != 1 || s.dials != 1 {
			t.Errorf("owners %v over %d connections, want one over one", names, s.dials)
		}
	})
}

func TestVersions(t *testing.T) {
	act(t, func(t *testing.T, s *stage) {
		f := func(name string, version uint64, pods ...Pod) {
			t.Helper()
			s.set(func() { s.says = listing(0, pods...) })
			pass(5 * time.Second)
			got := s.Snapshot()
			if got.Version != version || s.changes != int(version) || !got.Time.Equal(time.Now()) {
				t.Errorf("%s: version %d, %d changes, confirmed %v ago; want %d, now", name, got.Version, s.changes, time.Since(got.Time), version)
			}
			if diff := cmp.Diff(sorted(pods), got.Pods); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
		f("the same", 1, own("a", "GPU-1"))
		f("another id", 2, own("a", "GPU-2"))
		f("another pod", 3, own("b", "GPU-3"), own("a", "GPU-2"))
		f("in another order", 3, own("a", "GPU-2"), own("b", "GPU-3"))
		p := own("a", "GPU-2")
		p.Containers[0].Claims = []Claim{{"ns", "x", DeviceName{"d", "p", "gpu-0"}}}
		f("a claim", 4, p)
		p = own("a", "GPU-2")
		p.Containers[0].Claims = []Claim{{"ns", "x", DeviceName{"d", "p", "gpu-1"}}}
		f("another claimed device", 5, p)
		f("no pods, and no restart", 6)
		f("still none", 6)
	})
}

func TestRunEndsWhileACallHangs(t *testing.T) {
	act(t, func(t *testing.T, s *stage) {
		s.set(func() { s.says = nil })
		pass(7 * time.Second) // in the middle of a call
	})
}
