package owner

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"warpgauge/pkg/field"
	"warpgauge/pkg/kube"

	"google.golang.org/grpc/codes"

	"warpgauge/pkg/exposition"
	"warpgauge/pkg/kube/kubetest"
	"warpgauge/pkg/view"
)

// TestAKubeletThatFlapsChangesNoLabel scrapes concurrently while the kubelet
// shuffles its answer, fails, sends nonsense, dies and comes back without
// its pods: all pages are the same, byte for byte.
func TestAKubeletThatFlapsChangesNoLabel(t *testing.T) {
	kubelet := kubetest.Start(t)
	kubelet.Shuffle(true)
	pods := kubetest.Many(142, 8)
	kubelet.Set(append(pods,
		kubetest.Pod("ml", "a", kubetest.Container("main", kubetest.Devices("nvidia.com/gpu", uuid(0)+"::0", uuid(0)+"::1", uuid(1)))),
		kubetest.Pod("ml", "b", kubetest.Container("main", kubetest.Devices("nvidia.com/gpu", uuid(0)+"::2"))),
	)...)
	var k *Keeper
	client := kube.NewKubelet(kube.KubeletOptions{
		Socket: kubelet.Socket(), Keep: field.OffersGPU, Period: 10 * time.Millisecond,
		OnChange: func() { k.Notify() },
	})
	board := &view.Board{}
	measure(t, board, machine()[:8]...)
	k = New(board, Options{Allocations: client.Snapshot, Virtual: true})
	ctx, cancel := context.WithCancel(t.Context())
	var running, scrapers sync.WaitGroup
	running.Go(func() { _ = client.Run(ctx) })
	running.Go(func() { _ = k.Run(ctx) })
	defer running.Wait()
	defer cancel()

	a := gpu(0)
	for len(k.Owners(&a)) != 3 {
		kubelet.Await(kubetest.List, 1)
		k.Refresh(time.Now())
	}
	r := exposition.New(board, exposition.Options{Owners: k, StaleAfter: time.Hour})
	page := func() string { return string(r.Page(exposition.Text, false)) }
	want, version := page(), k.Version()
	var ended atomic.Bool
	for range 50 {
		scrapers.Go(func() {
			for !ended.Load() {
				if got := page(); got != want {
					t.Errorf("the page is another one:\n%s", got)
					return
				}
				time.Sleep(time.Millisecond) // a scraper's pause
			}
		})
	}
	for _, step := range []struct {
		name   string
		change func()
	}{
		{"shuffled", func() {}},
		{"rate limited", func() {
			kubelet.On(kubetest.List, kubetest.Fail(codes.ResourceExhausted, "rejected by rate limit"))
		}},
		{"nonsense", func() { kubelet.On(kubetest.List, kubetest.Say([]byte{0xff, 0xff, 0xff})) }},
		{"restarted, pods not yet found", func() { kubelet.On(kubetest.List, nil); kubelet.Restart() }},
	} {
		step.change()
		kubelet.Await(kubetest.List, 2) // the first answer was dealt with when the second is asked for
		if v := k.Version(); v != version {
			t.Errorf("%s: version %d, was %d", step.name, v, version)
		}
	}
	board.Store(&view.View{Version: 2, Sources: board.Load().Sources}) // and a reload in between
	ended.Store(true)
	scrapers.Wait()
}
