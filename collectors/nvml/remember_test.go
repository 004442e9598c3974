//go:build linux && cgo

package nvml

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"warpgauge/pkg/collector"
)

// TestRollCall: a GPU that NVML knew is itself when it is lost, also where the
// kernel tells nothing, and nobody where that is not certain.
func TestRollCall(t *testing.T) {
	at := func(index int, address, uuid string, err error) *gpu {
		g := newGPU(index)
		g.err = err
		if err == nil {
			g.device.PCIBusID, g.device.UUID, g.device.Node = address, uuid, "nvidia"+g.device.GPU
		}
		return g
	}
	gone := errors.New("GPU is lost")
	l := &library{}
	l.met.note([]*gpu{at(0, "00000000:0B:00.0", "GPU-a", nil), at(1, "00000000:12:00.0", "GPU-b", nil), at(2, "00000000:19:00.0", "GPU-c", nil)})
	d := &discovery{lib: l, o: Options{Root: t.TempDir()}}
	f := func(found []*gpu, want ...collector.Device) {
		t.Helper()
		d.fillIn(found)
		for i, g := range found {
			if g.err == nil {
				continue
			}
			got := collector.Device{UUID: g.device.UUID, PCIBusID: g.device.PCIBusID, Node: g.device.Node}
			if diff := cmp.Diff(want[i], got); diff != "" {
				t.Errorf("GPU %d of %d (-want +got):\n%s", i, len(found), diff)
			}
		}
	}
	b := collector.Device{UUID: "GPU-b", PCIBusID: "00000000:12:00.0", Node: "nvidia1"}
	a, c := at(0, "00000000:0B:00.0", "GPU-a", nil), at(2, "00000000:19:00.0", "GPU-c", nil)
	f([]*gpu{a, at(1, "", "", gone), c}, collector.Device{}, b)
	f([]*gpu{at(0, "", "", gone), at(1, "", "", gone), c}, collector.Device{UUID: "GPU-a", PCIBusID: "00000000:0B:00.0", Node: "nvidia0"}, b)
	f([]*gpu{a, at(1, "", "", gone)}, collector.Device{}, collector.Device{UUID: "nvml1", Node: "nvidia1"}) // which of two?
}
