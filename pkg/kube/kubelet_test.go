package kube

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"warpgauge/internal/testkit"
)

// actor is a kubelet without a socket, for tests of time, and the Kubelet that calls it.
type actor struct {
	*Kubelet
	logs    *observer.ObservedLogs
	changes int

	mu    sync.Mutex
	start time.Time
	says  *v1.ListPodResourcesResponse // nil: no answer
	lists []time.Duration              // when lists began, since start
	dials int
	open  int // connections that were not closed
}

var _ lister = (*actor)(nil)

func (a *actor) list(ctx context.Context) (*v1.ListPodResourcesResponse, *failure) {
	a.mu.Lock()
	a.lists = append(a.lists, time.Since(a.start))
	says := a.says
	a.mu.Unlock()
	if says == nil {
		<-ctx.Done()
		return nil, fail(ReasonTimeout, "no answer")
	}
	return says, nil
}

func (a *actor) close() { a.open-- }

func (a *actor) say(list *v1.ListPodResourcesResponse) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.says = list
}

// took returns the start times of the lists since the last call.
func (a *actor) took() []time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := a.lists
	a.lists = nil
	return out
}

// act runs a test in a synctest bubble, with a Kubelet and a kubelet that lists a/GPU-1.
func act(t *testing.T, test func(t *testing.T, a *actor)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		a := &actor{logs: logs, start: time.Now(), says: listing(0, own("a", "GPU-1"))}
		a.Kubelet = NewKubelet(KubeletOptions{Socket: "/none", Log: zap.New(core), OnChange: func() { a.changes++ }})
		a.connect = func(context.Context) (lister, *failure) {
			a.dials++
			a.open++
			return a, nil
		}
		stop := testkit.Start(t, a.Run)
		synctest.Wait()
		test(t, a)
		stop()
		testkit.Equal(t, "connections left open", 0, a.open)
	})
}

// pass advances the time and waits until all goroutines are idle.
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
	act(t, func(t *testing.T, a *actor) {
		pass(5 * time.Second)
		good := a.Snapshot()
		a.say(nil)
		a.took()
		pass(time.Minute)
		s := a.Health.State()
		testkit.ErrorIf(t, a.Snapshot() != good || s.Age != time.Minute || s.Failing != ReasonTimeout, "the snapshot is %v, want still %v; state %+v", a.Snapshot(), good, s)
		testkit.Equal(t, "lists, 10 s long with 5 s between", seconds(10, 25, 40, 55), a.took())
		n := a.logs.FilterMessageSnippet("mapping failed").Len()
		testkit.ErrorIf(t, n != 1 || a.dials != 2, "%d lines in the log, want 1; %d connections, want another one after three calls without an answer", n, a.dials)
		a.say(listing(0, own("a", "GPU-1")))
		pass(15 * time.Second)
		if got := a.Snapshot(); got.Version != good.Version || !got.Time.After(good.Time) || a.Health.State().Failing != "" || a.changes != 1 {
			t.Errorf("after the silence: %v, failing %q, %d changes", got, a.Health.State().Failing, a.changes)
		}
		a.say(nil)
		pass(7 * time.Second) // Run ends in the middle of a call
	})
}

func TestVersions(t *testing.T) {
	claimed := func(device string) Pod {
		p := own("a", "GPU-2")
		p.Containers[0].Claims = []Claim{{"ns", "x", DeviceName{"d", "p", device}}}
		return p
	}
	act(t, func(t *testing.T, a *actor) {
		f := func(name string, version uint64, pods ...Pod) {
			t.Helper()
			a.say(listing(0, pods...))
			pass(5 * time.Second)
			if got := a.Snapshot(); got.Version != version || a.changes != int(version) || !got.Time.Equal(time.Now()) || len(got.Pods) != len(pods) {
				t.Errorf("%s: %+v, %d changes; want version %d, confirmed now", name, got, a.changes, version)
			}
		}
		f("the same", 1, own("a", "GPU-1"))
		f("another id", 2, own("a", "GPU-2"))
		f("another pod", 3, own("b", "GPU-3"), own("a", "GPU-2"))
		f("in another order", 3, own("a", "GPU-2"), own("b", "GPU-3"))
		f("a claim", 4, claimed("gpu-0"))
		f("another claimed device", 5, claimed("gpu-1"))
		f("no pods, and no restart", 6)
		f("still none", 6)
	})
}
