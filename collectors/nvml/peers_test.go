//go:build linux && cgo

package nvml

import (
	"math"
	"testing"
	"testing/synctest"

	"warpgauge/internal/testkit"
)

// p2p returns a row's values by peer and status.
func p2p(t *testing.T, p part) map[string]float64 {
	t.Helper()
	row := testkit.Get(sampleAllOf(p))(t)
	out := map[string]float64{}
	for i, c := range p.columns() {
		if !math.IsNaN(row[i]) {
			out[c.Labels[1].Value+" "+c.Labels[0].Value] = row[i]
		}
	}
	synctest.Wait()
	return out
}

// TestPeers checks that a row holds the answers to the previous row's calls. A hanging peer is blank, and is not
// called again until it answers.
func TestPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		status, asked := 0, 0
		release := make(chan struct{})
		c := &costs{}
		p := &peersPart{cost: c.meter("")}
		p.add(0, func() int { return status })
		p.add(2, func() int { return 3 })
		p.add(3, func() int { asked++; <-release; return 5 })
		p.add(7, func() int { return peerUnknown })
		synctest.Wait()
		status = 4
		equal(t, map[string]float64{"0 OK": 0, "2 TopologyNotSupported": 3}, p2p(t, p), "at first")
		equal(t, map[string]float64{"0 DisabledByRegKey": 4, "2 TopologyNotSupported": 3}, p2p(t, p), "after a change")
		testkit.Equal(t, "questions to a peer that hangs", 1, asked)
		close(release)
		synctest.Wait()
		equal(t, map[string]float64{"0 DisabledByRegKey": 4, "2 TopologyNotSupported": 3, "3 NotSupported": 5}, p2p(t, p), "when no peer hangs any more")
		if c := c.Calls()[0]; c.Count != 14 {
			t.Errorf("%d calls are counted, want 14", c.Count)
		}
		p.close()
	})
}
