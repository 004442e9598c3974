package sampler

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"warpgauge/pkg/collector"
)

// callTotals keeps what the library calls of earlier bindings have cost, so
// that the counters do not go backwards when a collector is opened again.
type callTotals struct {
	mu    sync.Mutex
	spent map[string]collector.CallCost
}

// swap puts next in the place of the binding in service and adds what that has
// cost, in one step: a sum without either, or with both, would go back later.
func (t *callTotals) swap(current *atomic.Pointer[binding], next *binding) (old *binding) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.spent == nil {
		t.spent = make(map[string]collector.CallCost)
	}
	if old = current.Swap(next); old != nil {
		old.addCalls(t.spent)
	}
	return old
}

// with returns the costs of all bindings up to and with the one in service, by
// name of the call.
func (t *callTotals) with(current *atomic.Pointer[binding]) []collector.CallCost {
	t.mu.Lock()
	defer t.mu.Unlock()
	sum := make(map[string]collector.CallCost, len(t.spent))
	for name, c := range t.spent {
		sum[name] = c
	}
	if b := current.Load(); b != nil {
		b.addCalls(sum)
	}
	out := make([]collector.CallCost, 0, len(sum))
	for _, c := range sum {
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b collector.CallCost) int { return cmp.Compare(a.Call, b.Call) })
	return out
}

func (b *binding) addCalls(sum map[string]collector.CallCost) {
	for _, w := range b.workers {
		m, ok := w.source.(collector.CallMeter)
		if !ok {
			continue
		}
		for _, c := range m.Calls() {
			was := sum[c.Call]
			sum[c.Call] = collector.CallCost{Call: c.Call, Count: was.Count + c.Count, Time: was.Time + c.Time}
		}
	}
}
