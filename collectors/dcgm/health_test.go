//go:build linux && cgo

package dcgm

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/internal/testkit/race"
	"warpgauge/pkg/field"
)

// cellsOf are the cells of a field of a device that have a value: by one label, the
// other labels and the value.
func (c *opened) cellsOf(id field.ID, device int, by string) map[string]string {
	out := map[string]string{}
	for i, col := range c.sources[0].Columns() {
		v := c.row[0][i]
		if col.Field != id || col.Device != device || math.IsNaN(v) {
			continue
		}
		key, rest := "", ""
		for _, l := range col.Labels {
			if l.Name == by {
				key = l.Value
			} else {
				rest += l.Value
			}
		}
		if _, twice := out[key]; twice {
			rest = "twice: " + rest
		}
		out[key] = fmt.Sprintf("%s %v", rest, v)
	}
	return out
}

// well is what a GPU has with which nothing is wrong, but for what is said.
func well(but ...string) map[string]string {
	out := map[string]string{}
	for _, w := range healthWatches {
		out[w.name] = "DCGM_FR_OK 0"
	}
	for i := 0; i < len(but); i += 2 {
		out[but[i]] = but[i+1]
	}
	return out
}

const healthName = "DCGM_EXP_GPU_HEALTH_STATUS"

// TestHealthReasons: the worst incident of a watch is shown, and the last one of
// equals; a reason that DCGM does not have yet is unknown, and logged once; what is of
// other entities is left out.
func TestHealthReasons(t *testing.T) {
	e := simulate(t, dcgmtest.Config{GPUs: 2})
	c := open1(t, remote(e), healthName)
	c.mustSample(t)
	e.Incident(dcgmtest.GPU(1), 0x10, 20, 80, "a row is lost")
	e.Incident(dcgmtest.GPU(1), 0x10, 20, 52, "memory is faulty")
	e.Incident(dcgmtest.GPU(1), 0x10, 10, 85, "a row waits")
	e.Incident(dcgmtest.GPU(0), healthAll, 20, 120, "gone")
	e.Incident(dcgmtest.GPU(0), 0x80, 10, 999, "of a newer engine")
	e.Incident(dcgmtest.Switch(0), 0x800, 20, 15, "no GPU")
	want := []map[string]string{
		well("ALL", "DCGM_FR_FALLEN_OFF_BUS 20", "THERMAL", "DCGM_FR_UNKNOWN 10"),
		well("MEM", "DCGM_FR_FAULTY_MEMORY 20"),
	}
	for range 2 {
		c.mustSample(t)
		for gpu := range want {
			if diff := cmp.Diff(want[gpu], c.cellsOf(field.GPUHealth, gpu, "health_watch")); diff != "" {
				t.Errorf("GPU %d (-want +got):\n%s", gpu, diff)
			}
		}
	}
	if n := c.logs.FilterMessageSnippet("reporting DCGM_FR_UNKNOWN").Len(); n != 1 {
		t.Errorf("%d lines about the unknown reason, want one", n)
	}
	e.Healthy()
	c.mustSample(t)
	if diff := cmp.Diff(well(), c.cellsOf(field.GPUHealth, 1, "health_watch")); diff != "" {
		t.Errorf("healthy again (-want +got):\n%s", diff)
	}
}

const peersName = "DCGM_EXP_P2P_STATUS"

// TestNoAllocation: health and peers cost no memory.
func TestNoAllocation(t *testing.T) {
	if race.Enabled {
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
