package owner

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/view"
)

// TestRun joins changes right after Notify, or a second later without one; a thousand changes make only a few tables.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(virtual, machine()...)
		testkit.Start(t, r.Run)
		synctest.Wait()
		r.set("ml/a/main: nvidia.com/gpu " + uuid(0))
		r.wants(t, "before the notification", uuid(0))
		r.Notify()
		r.Notify() // never blocks
		time.Sleep(rest)
		synctest.Wait()
		r.wants(t, "after Notify", uuid(0), "container=main namespace=ml pod=a")
		r.set()
		time.Sleep(checkPeriod + rest) // without a notification
		synctest.Wait()
		r.wants(t, "long after they are gone", uuid(0))

		before := testutil.ToFloat64(r.metrics.builds)
		for i := range 1000 {
			r.set(fmt.Sprintf("ml/p%d/main: nvidia.com/gpu %s", i, uuid(0)))
			r.Notify()
			time.Sleep(time.Millisecond)
		}
		time.Sleep(checkPeriod)
		synctest.Wait()
		builds := testutil.ToFloat64(r.metrics.builds) - before
		most := float64(time.Second/rest) + 2
		testkit.ErrorIf(t, builds < 2 || builds > most, "%v tables for 1000 changes in a second, want at most %v", builds, most)
		r.wants(t, "after 1000 changes", uuid(0), "container=main namespace=ml pod=p999")
	})
}

// TestVersion: the version grows exactly when an answer changes.
func TestVersion(t *testing.T) {
	r := newRig(func(o *Options) { o.PodLabels = true }, machine()...)
	last := r.Version()
	step := func(what string, grows bool, change func()) {
		t.Helper()
		change()
		now := r.Version()
		testkit.ErrorIf(t, (now > last) != grows || now < last, "%s: version went from %d to %d", what, last, now)
		last = now
	}
	one := "ml/a/main: nvidia.com/gpu " + uuid(0)
	step("a pod", true, func() { r.give(one) })
	step("the same answer under another version", false, func() { r.give(one) })
	step("a device that is not there", false, func() { r.give(one, "ml/b/main: nvidia.com/gpu "+uuid(8)) })
	step("a pod without devices is known", false, func() { r.know("ml/b uid-b x=y") })
	step("the pod's uid, which AMD's names show", true, func() { r.know("ml/a uid-a") })
	step("the pod's labels", true, func() { r.know("ml/a uid-a x=y") })
	step("the same labels", false, func() { r.know("ml/a uid-a x=y") })
	step("a job", true, func() { r.schedule(map[string][]string{"1": {"7"}}) })
	step("a job of a GPU that there is not", false, func() { r.schedule(map[string][]string{"1": {"7"}, "9": {"8"}}) })
	step("processes", false, func() { r.use(uuid(0), true, proc("uid-a", 1, 1)) })
	step("the second pod, so that the first is no longer shown", true, func() { r.give(one, "ml/b/main: nvidia.com/gpu "+uuid(0)) })
	step("a third", false, func() {
		r.give(one, "ml/b/main: nvidia.com/gpu "+uuid(0), "ml/c/main: nvidia.com/gpu "+uuid(0))
	})
	step("values per user where only the job was shown before", true, func() {
		r.give(one, "ml/b/main: nvidia.com/gpu "+uuid(0), "ml/x/main: nvidia.com/gpu "+uuid(1), "ml/y/main: nvidia.com/gpu "+uuid(1))
	})
	step("a View with the same devices", false, func() {
		r.board.Store(&view.View{Version: 2, Sources: []*view.Source{{Devices: machine()}}})
	})
	step("a View without them", true, func() { r.board.Store(&view.View{Version: 3}) })
}

// TestANewViewIsJoinedByWhoAsks: the first reader of a new View gets the same labels as before, although nothing
// notified Run.
func TestANewViewIsJoinedByWhoAsks(t *testing.T) {
	r := newRig(nil).give("ml/a/main: nvidia.com/gpu "+uuid(0), "ml/b/main: nvidia.com/gpu "+uuid(1))
	testkit.Equal(t, "ids without a device", 2, len(r.Unmatched()))
	r.board.Store(&view.View{Version: 2, Sources: []*view.Source{{Devices: machine()}}})
	r.wants(t, "another View", uuid(1), "container=main namespace=ml pod=b")
}

// TestNobodyIsAsked: every client may be absent.
func TestNobodyIsAsked(t *testing.T) {
	k, d := New(boardOf(machine()...), Options{}), gpu(0)
	k.Refresh(time.Now())
	testkit.ErrorIf(t, k.Owners(&d) != nil || k.Split(&d, gpuUtil) || k.Shares() != nil || k.Describe(&d) != nil || len(k.Unmatched()) != 0, "there are users")
}

// TestHammer reads from many goroutines while everything changes: each reader sees answers of one table, and versions
// only grow. Mostly for the race detector.
func TestHammer(t *testing.T) {
	r := newRig(all(virtual, func(o *Options) { o.PodLabels, o.PodUID = true, true }), machine()...)
	ctx, cancel := context.WithCancel(t.Context())
	var all, readers sync.WaitGroup
	all.Go(func() { _ = r.Run(ctx) })
	var changes atomic.Int64
	all.Go(func() {
		for n := 1; ctx.Err() == nil; n++ {
			r.set(fmt.Sprintf("ml/a/main: nvidia.com/gpu %s::%d", uuid(0), n), fmt.Sprintf("ml/b/main: nvidia.com/gpu %s::%d", uuid(0), n))
			r.know("ml/a uid-a n="+fmt.Sprint(n), "ml/b uid-b")
			r.use(uuid(0), true, proc("uid-a", float64(n), mib), proc("uid-b", float64(n), mib))
			switch n % 3 {
			case 0:
				r.board.Store(&view.View{Version: uint64(n), Sources: []*view.Source{{Devices: machine()}}})
			case 1:
				r.Notify()
			}
			changes.Add(1)
		}
	})
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(r.metrics)
	for range 8 {
		readers.Go(func() {
			last, d := uint64(0), gpu(0)
			for changes.Load() < 300 {
				if v := r.Version(); v < last {
					t.Errorf("version %d after %d", v, last)
				} else {
					last = v
				}
				owners := r.Owners(&d)
				if len(owners) == 2 && owners[0].Labels[len(owners[0].Labels)-1] != owners[1].Labels[len(owners[1].Labels)-1] {
					t.Errorf("owners of two tables: %+v", owners) // all owners must have the same share number
				}
				if s := r.Shares(); s != nil && len(s.Values) == 4 && s.Values[0] == s.Values[0] && s.Values[0] != s.Values[2] {
					t.Errorf("values of two samples: %v", s.Values)
				}
				r.Split(&d, fbUsed)
				r.Describe(&d)
			}
		})
	}
	readers.Go(func() {
		for changes.Load() < 300 {
			_, err := registry.Gather()
			testkit.ErrorIf(t, err != nil, "%v", err)
		}
	})
	readers.Wait()
	cancel()
	all.Wait()
}

// TestAskingDoesNotAllocate: every scrape reads the version.
func TestAskingDoesNotAllocate(t *testing.T) {
	r := twoPods().use(uuid(0), true, proc("uid-a", 30, mib))
	d := r.device(t, uuid(0))
	if n := testing.AllocsPerRun(100, func() {
		r.Version()
		r.Owners(d)
		r.Split(d, gpuUtil)
		r.Shares()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
