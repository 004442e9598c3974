//go:build linux && cgo

package nvml

import (
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func answers(status int) func() (int, bool) { return func() (int, bool) { return status, true } }

// p2p returns the values of a row by peer and status.
func p2p(t *testing.T, p part) map[string]float64 {
	t.Helper()
	row, err := sampleAllOf(p)
	must(t, err)
	out := map[string]float64{}
	for i, c := range p.columns() {
		if !math.IsNaN(row[i]) {
			out[c.Labels[1].Value+" "+c.Labels[0].Value] = row[i]
		}
	}
	return out
}

func TestPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		status := 0
		p := newPeersPart([]*peer{
			{index: 0, call: func() (int, bool) { return status, true }}, {index: 2, call: answers(3)}, {index: 3, call: answers(5)}, {index: 7, call: func() (int, bool) { return 0, false }},
		})
		defer p.close()
		want := map[string]float64{"0 OK": 0, "2 TopologyNotSupported": 3, "3 NotSupported": 5}
		equal(t, want, p2p(t, p), "status of peers")
		status = 4
		want = map[string]float64{"0 DisabledByRegKey": 4, "2 TopologyNotSupported": 3, "3 NotSupported": 5}
		equal(t, want, p2p(t, p), "status of peers after a change")
		if c := p.calls()[0]; c.Count != 8 {
			t.Errorf("%d calls are counted, want 8", c.Count)
		}
	})
}

// TestPeersHang: a peer that hangs is blank, costs a sample no more than
// patience, and is asked no second time until it answers.
func TestPeersHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var asked atomic.Int64
		p := newPeersPart([]*peer{
			{index: 1, call: answers(0)}, {index: 2, call: func() (int, bool) { asked.Add(1); <-release; return 0, true }}, {index: 3, call: answers(0)},
		})
		for i := range 3 {
			start := time.Now()
			equal(t, map[string]float64{"1 OK": 0, "3 OK": 0}, p2p(t, p), "while a peer hangs")
			if took := time.Since(start); took > peersPatience || i > 0 && took > 0 {
				t.Errorf("sample %d took %v", i, took)
			}
		}
		if n := asked.Load(); n != 1 {
			t.Errorf("a peer that hangs was asked %d times", n)
		}
		close(release)
		synctest.Wait()
		equal(t, map[string]float64{"1 OK": 0, "2 OK": 0, "3 OK": 0}, p2p(t, p), "when no peer hangs any more")
		p.close()
	})
}
