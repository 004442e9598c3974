//go:build linux && cgo

package dcgm

import (
	"slices"
	"testing"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

const peersName = "DCGM_EXP_P2P_STATUS"

// TestPeersUnknown: an answer of the engine that is an error leaves blanks.
func TestPeersUnknown(t *testing.T) {
	e := simulate(t, dcgmtest.Config{GPUs: 2})
	c := open1(t, remote(e), peersName)
	e.Return("dcgmGetNvLinkP2PStatus", -18)
	for range 2 {
		if err := c.sample(0); err != nil {
			t.Fatal(err)
		}
		if got := c.cellsOf(field.P2PStatus, 0, "peer_gpu"); len(got) != 0 {
			t.Errorf("peers without an answer: %v", got)
		}
	}
	if n := c.logs.FilterMessage("cannot read NVLink peer status").Len(); n != 1 {
		t.Errorf("logged %d times, want once", n)
	}
	e.Return("dcgmGetNvLinkP2PStatus", 0)
	c.mustSample(t)
	if got := c.cellsOf(field.P2PStatus, 0, "peer_gpu"); len(got) != 1 {
		t.Errorf("peers afterwards: %v", got)
	}
}

// TestPeersNotOffered: a library without the function has no column, and one line
// says so.
func TestPeersNotOffered(t *testing.T) {
	e := simulate(t, dcgmtest.Config{GPUs: 2, Without: []string{"dcgmGetNvLinkP2PStatus"}})
	c := open1(t, remote(e), peersName, "DCGM_FI_DEV_GPU_TEMP")
	if has := slices.ContainsFunc(c.sources[0].Columns(), func(col collector.Column) bool { return col.Field == field.P2PStatus }); has {
		t.Error("there are columns of peers")
	}
	if n := c.logs.FilterMessage("library lacks dcgmGetNvLinkP2PStatus; skipping NVLink peer status").Len(); n != 1 {
		t.Errorf("logged %d times, want once", n)
	}
}

// TestNoAllocation: health and peers cost no memory.
func TestNoAllocation(t *testing.T) {
	if raceEnabled {
		t.Skip("the race runtime allocates")
	}
	e := simulate(t, dcgmtest.Config{GPUs: 4})
	e.Incident(dcgmtest.GPU(1), 0x10, 20, 80, "a row is lost")
	c := open1(t, remote(e), healthName, peersName)
	c.mustSample(t)
	if n := testing.AllocsPerRun(50, func() { _ = c.sources[0].Sample(c.row[0], c.due[0]) }); n != 0 {
		t.Errorf("%v allocations per sample", n)
	}
}
