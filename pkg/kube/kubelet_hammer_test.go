package kube

import (
	"context"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"warpgauge/internal/testkit/eventually"
	"warpgauge/pkg/kube/kubetest"
)

// Fifty readers, and a kubelet that goes through everything that it can: no reader
// ever sees less than what the kubelet said when it was well.
func TestReadersWhileTheKubeletFlaps(t *testing.T) {
	kubelet := kubetest.Start(t)
	kubelet.Shuffle(true)
	pods := kubetest.Many(110, 64)
	kubelet.Set(pods...)
	r := start(t, KubeletOptions{Socket: kubelet.Socket(), Period: time.Millisecond}, timeout(50*time.Millisecond), func(k *Kubelet) { k.gap = time.Millisecond })
	eventually.True(t, "there is an answer", func() bool { return r.Snapshot().Version > 0 })
	version := r.Snapshot().Version
	ctx, cancel := context.WithCancel(context.Background())
	var readers sync.WaitGroup
	var seen atomic.Int64
	for range 50 {
		readers.Go(func() {
			// A reader pauses as a scraper does; fifty that never do leave two cores no
			// time for the client.
			for last := r.Snapshot(); ctx.Err() == nil; time.Sleep(100 * time.Microsecond) {
				s := r.Snapshot()
				if s == last {
					continue
				}
				if s.Version != version || s.Time.Before(last.Time) || len(s.Pods) != 64 {
					t.Errorf("version %d, %d pods, confirmed %v later, want %d, 64, not earlier", s.Version, len(s.Pods), s.Time.Sub(last.Time), version)
					return
				}
				check(t, s.Pods)
				last = s
				seen.Add(1)
			}
		})
	}
	f := func(reason string, fault func()) {
		t.Helper()
		fault()
		r.failing(reason)
		kubelet.On(nil)
		kubelet.Restart(pods...)
		eventually.True(t, "all is well", func() bool { return r.Health.State().Failing == "" })
	}
	on := func(b kubetest.Behaviour) func() {
		return func() { kubelet.On(b) }
	}
	for range 3 {
		f(ReasonTimeout, on(kubetest.Silence()))
		f(ReasonError, on(kubetest.Fail(codes.Internal, "broken")))
		f(ReasonMalformed, on(kubetest.Say([]byte{0xff})))
		f(ReasonRateLimited, on(kubetest.Fail(codes.ResourceExhausted, "rejected by rate limit")))
		f(ReasonRefused, kubelet.Kill)
		f(ReasonAbsent, func() { kubelet.Kill(); kubelet.Remove() })
		f(ReasonRecovering, func() { kubelet.Restart() })
		f(ReasonRecovering, func() { kubelet.Restart(pods[:3]...) })
	}
	cancel()
	readers.Wait()
	if seen.Load() == 0 {
		t.Error("no reader has seen another snapshot")
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip(err)
	}
	return len(files)
}

func TestNothingIsLeftOpen(t *testing.T) {
	kubelet := kubetest.Start(t)
	kubelet.Set(train("a", "GPU-1"))
	idle := descriptors(t)
	run := func() {
		t.Run("run", func(t *testing.T) {
			r := start(t, KubeletOptions{Socket: kubelet.Socket(), Period: time.Millisecond}, timeout(10*time.Millisecond), func(k *Kubelet) { k.gap = time.Millisecond })
			r.owners("ml/a")
			files, goroutines := descriptors(t), runtime.NumGoroutine()
			for range 20 {
				kubelet.Kill()
				r.failing(ReasonRefused)
				kubelet.Serve()
				r.owners("ml/a")
				kubelet.On(kubetest.Silence())
				r.failing(ReasonTimeout)
				kubelet.On(nil)
				r.owners("ml/a")
			}
			eventually.True(t, "there are as many descriptors as before", func() bool { return descriptors(t) <= files })
			eventually.True(t, "there are as many goroutines as before", func() bool { return runtime.NumGoroutine() <= goroutines })
		})
	}
	run()
	eventually.True(t, "there are as many descriptors as without a client", func() bool { return descriptors(t) <= idle })
}
