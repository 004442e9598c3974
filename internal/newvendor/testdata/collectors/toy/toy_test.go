package toy

import (
	"fmt"
	"sync"
	"testing"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/collector/collectortest"
)

// boards is a Driver written by hand.
type boards struct {
	mu   sync.Mutex
	n    int
	lost map[string]bool
	hung map[string]chan struct{}
}

func (b *boards) set(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

func (b *boards) GPUs() (out []string) {
	b.set(func() {
		for i := range b.n {
			out = append(out, fmt.Sprintf("TOY-00000000-1111-2222-3333-%012d", i))
		}
	})
	return out
}

func (b *boards) Temperature(uuid string) (v float64, ok bool) {
	var hung chan struct{}
	b.set(func() { hung, ok = b.hung[uuid], !b.lost[uuid] })
	if hung != nil {
		<-hung
	}
	return 40, ok
}

func TestConformance(t *testing.T) {
	collectortest.Run(t, collectortest.Harness{
		Name:      "toy",
		Allocates: true, // the driver above allocates
		New: func(testing.TB) collectortest.Rig {
			b := &boards{n: 2, lost: map[string]bool{}, hung: map[string]chan struct{}{}}
			return collectortest.Rig{
				Factory:       func() collector.Collector { return New(b) },
				LoseDevice:    func(id string) { b.set(func() { b.lost[id] = true }) },
				RestoreDevice: func(id string) { b.set(func() { b.lost[id] = false }) },
				Hang: func(id string) func() {
					c := make(chan struct{})
					b.set(func() { b.hung[id] = c })
					return func() { b.set(func() { delete(b.hung, id) }); close(c) }
				},
				FailOpen: func() func() {
					b.set(func() { b.n = 0 })
					return func() { b.set(func() { b.n = 2 }) }
				},
			}
		},
	})
}
