//go:build linux && cgo

package dcgm

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"warpgauge/collectors/dcgm/dcgmtest"
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

// TestHealthJudged: every watch has a value from the first sample on, and shows the reason as soon as the engine has one:
// the worst incident's, and the last one's of equals. A reason that DCGM does not have yet is unknown, and logged once;
// what is of other entities is left out.
func TestHealthJudged(t *testing.T) {
	onAll(t, hardware{gpus: 3}, func(t *testing.T, m machine) {
		c := started(t, m, healthName, temperature)
		want := []map[string]string{well(), well(), well()}
		check := func() {
			t.Helper()
			for gpu := range want {
				if diff := cmp.Diff(want[gpu], c.cellsOf(field.GPUHealth, gpu, "health_watch")); diff != "" {
					t.Errorf("GPU %d (-want +got):\n%s", gpu, diff)
				}
			}
		}
		check()
		m.sick(1)
		c.until(t, 0, "the reason", func(err error) bool {
			return err == nil && c.cellsOf(field.GPUHealth, 1, "health_watch")["MEM"] == "DCGM_FR_XID_ERROR 10"
		})
		want[1] = well("MEM", "DCGM_FR_XID_ERROR 10")
		check()
		e := m.simulation()
		if e == nil {
			return
		}
		e.Incident(dcgmtest.GPU(1), 0x10, 20, 80, "a row is lost")
		e.Incident(dcgmtest.GPU(1), 0x10, 20, 52, "memory is faulty")
		e.Incident(dcgmtest.GPU(1), 0x10, 10, 85, "a row waits")
		e.Incident(dcgmtest.GPU(0), healthAll, 20, 120, "gone")
		e.Incident(dcgmtest.GPU(0), 0x80, 10, 999, "of a newer engine")
		e.Incident(dcgmtest.Switch(0), 0x800, 20, 15, "no GPU")
		want[0], want[1] = well("ALL", "DCGM_FR_FALLEN_OFF_BUS 20", "THERMAL", "DCGM_FR_UNKNOWN 10"), well("MEM", "DCGM_FR_FAULTY_MEMORY 20")
		for range 2 {
			c.mustSample(t)
			check()
		}
		if n := c.logs.FilterMessageSnippet("reporting DCGM_FR_UNKNOWN").Len(); n != 1 {
			t.Errorf("%d lines about the unknown reason, want one", n)
		}
		e.Healthy()
		c.mustSample(t)
		want[0], want[1] = well(), well()
		check()
	})
}

const peersName = "DCGM_EXP_P2P_STATUS"
