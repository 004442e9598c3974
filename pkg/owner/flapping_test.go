package owner

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"warpgauge/pkg/exposition"
	"warpgauge/pkg/podresources"
	"warpgauge/pkg/podresources/podresourcestest"
	"warpgauge/pkg/view"
)

// TestAKubeletThatFlapsChangesNoLabel scrapes from many sides while the kubelet
// shuffles its answer, fails, talks nonsense, is silent, dies and comes back without
// its pods: all pages are the same, byte for byte.
func TestAKubeletThatFlapsChangesNoLabel(t *testing.T) {
	kubelet := podresourcestest.Start(t)
	kubelet.Shuffle(true)
	pods := podresourcestest.Many(142, 8)
	kubelet.Set(append(pods,
		podresourcestest.Pod("ml", "a", podresourcestest.Container("main", podresourcestest.Devices("nvidia.com/gpu", uuid(0)+"::0", uuid(0)+"::1", uuid(1)))),
		podresourcestest.Pod("ml", "b", podresourcestest.Container("main", podresourcestest.Devices("nvidia.com/gpu", uuid(0)+"::2"))),
	)...)
	var k *Keeper
	client := podresources.New(podresources.Options{
		Socket: kubelet.Socket(), Keep: Keep(nil), Period: 10 * time.Millisecond, Timeout: 200 * time.Millisecond,
		OnChange: func() { k.Notify() },
	})
	board := &view.Board{}
	measure(t, board, machine()[:8]...)
	k = New(board, Options{PodResources: client.Snapshot, Virtual: true})
	ctx, cancel := context.WithCancel(t.Context())
	var running, scrapers sync.WaitGroup
	running.Go(func() { _ = client.Run(ctx) })
	running.Go(func() { _ = k.Run(ctx) })
	defer running.Wait()
	defer cancel()

	a := gpu(0)
	for len(k.Owners(&a)) != 3 {
		kubelet.Await(podresourcestest.List, 1)
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
				time.Sleep(time.Millisecond) // a scraper's pause, nobody waits for it
			}
		})
	}
	for _, step := range []struct {
		name   string
		change func()
	}{
		{"shuffled", func() {}},
		{"rate limited", func() {
			kubelet.On(podresourcestest.List, podresourcestest.Fail(codes.ResourceExhausted, "rejected by rate limit"))
		}},
		{"nonsense", func() { kubelet.On(podresourcestest.List, podresourcestest.Say([]byte{0xff, 0xff, 0xff})) }},
		{"silence", func() { kubelet.On(podresourcestest.List, podresourcestest.Silence()) }},
		{"restarted, pods not yet found", func() { kubelet.On(podresourcestest.List, nil); kubelet.Restart() }},
	} {
		step.change()
		kubelet.Await(podresourcestest.List, 2) // the first answer was dealt with when the second is asked for
		if v := k.Version(); v != version {
			t.Errorf("%s: version %d, was %d", step.name, v, version)
		}
	}
	board.Store(&view.View{Version: 2, Sources: board.Load().Sources}) // and a reload in between
	ended.Store(true)
	scrapers.Wait()
}
