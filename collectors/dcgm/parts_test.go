//go:build linux && cgo

package dcgm

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// cellsOf returns the cells with a value of a device's field: the key is the label by, the text has the other labels and
// the value.
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

// well returns the health of a healthy GPU, with the pairs in but replaced.
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

// TestHealthJudged checks that every watch has a value in the first sample and shows the reason of the worst incident, or of
// the last one of equals. A reason beyond DCGM's list is unknown and logged once. Incidents of other entities are ignored.
func TestHealthJudged(t *testing.T) {
	onAll(t, hardware{gpus: 3}, func(t *testing.T, m machine) {
		c := started(t, m, healthName, temperature)
		want := []map[string]string{well(), well(), well()}
		check := func() {
			t.Helper()
			for gpu := range want {
				testkit.Equal(t, fmt.Sprintf("GPU %d", gpu), want[gpu], c.cellsOf(field.GPUHealth, gpu, "health_watch"))
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
		testkit.Equal(t, "lines about the unknown reason", 1, c.logs.FilterMessageSnippet("reporting DCGM_FR_UNKNOWN").Len())
		e.Healthy()
		c.mustSample(t)
		want[0], want[1] = well(), well()
		check()
	})
}

const peersName = "DCGM_EXP_P2P_STATUS"

const xidCount = "DCGM_EXP_XID_ERRORS_COUNT"

// TestStormOfXIDs checks that XIDs beyond xidPending are dropped and reported as a gap.
func TestStormOfXIDs(t *testing.T) {
	e := dcgmtest.New(t, dcgmtest.Config{Preset: "pcie", GPUs: 1})
	c := open1(t, remote(e), temperature, xidCount)
	c.mustSample(t)
	since := func() float64 {
		i := slices.IndexFunc(c.sources[0].Columns(), func(col collector.Column) bool { return col.Field == field.XIDsSince })
		return c.row[0][i]
	}
	began := since()
	x := c.sources[0].(*source).parts[1].(*xids)
	for range xidPending - 1 {
		x.devices[0].pending = append(x.devices[0].pending, cell{value: 31, micros: 1})
	}
	for code := range 3 {
		e.XID(0, 100+code)
	}
	got := ledger{}
	for before := -1; len(got[nvmltest.UUID(0)]) > before; {
		before = len(got[nvmltest.UUID(0)])
		got.sample(t, c)
	}
	all := got[nvmltest.UUID(0)]
	if len(all) != xidPending || all[xidPending-1] != 100 {
		t.Errorf("%d XIDs, the last %v; want %d and 100", len(all), all[len(all)-1], xidPending)
	}
	testkit.ErrorIf(t, since() <= began, "no gap reported")
}

// ledger holds the XIDs that collectors have reported, by GPU, oldest first.
type ledger map[string][]float64

// sample samples a collector once.
func (l ledger) sample(tb testing.TB, c *opened) {
	tb.Helper()
	must(tb, c.sample(0))
	devices := c.sources[0].Devices()
	for i, col := range c.sources[0].Columns() {
		if v := c.row[0][i]; col.Field == field.XIDEvent && !math.IsNaN(v) {
			id := devices[col.Device].ID
			l[id] = append(l[id], v)
		}
	}
}

// await waits until the ledger equals want. An XID that comes too late fails the next await.
func (l ledger) await(tb testing.TB, want ledger, c *opened) {
	tb.Helper()
	eventually.OK(tb, "XIDs as events", func() error {
		l.sample(tb, c)
		if !maps.EqualFunc(want, l, slices.Equal) {
			return fmt.Errorf("there are %v, want %v", l, want)
		}
		return nil
	})
}

// TestEachXIDOnce checks that each XID is reported once, whatever their number between two samples, and that XIDs from
// before Open are not reported.
func TestEachXIDOnce(t *testing.T) {
	onAll(t, hardware{gpus: 2}, func(t *testing.T, m machine) {
		a, b := nvmltest.UUID(0), nvmltest.UUID(1)
		c := started(t, m, temperature, xidCount)
		got, want := ledger{}, ledger{}
		for fence := range 2 {
			for _, code := range []int{13, 13, 100 + fence} {
				m.xid(0, code)
				want[a] = append(want[a], float64(code))
			}
			m.xid(1, 31)
			want[b] = append(want[b], 31)
			got.await(t, want, c)
		}
		must(t, c.Close())
		late := started(t, m, temperature, xidCount)
		m.xid(1, 45)
		want[b] = append(want[b], 45)
		got.await(t, want, late)
	})
}

// TestPeersOfEach checks that each GPU has each other GPU once, with the driver's status.
func TestPeersOfEach(t *testing.T) {
	onBoth(t, hardware{gpus: 4}, func(t *testing.T, m machine) {
		c := started(t, m, peersName)
		for status := range field.LinkStatuses {
			m.setPeers(0, 1, status)
			want := []map[string]string{{}, {}, {}, {}}
			for a := range 4 {
				for b := range 4 {
					if a != b {
						want[a][fmt.Sprint(b)] = "OK 0"
					}
				}
			}
			want[0]["1"] = fmt.Sprintf("%s %d", field.LinkStatuses[status], status)
			want[1]["0"] = want[0]["1"]
			eventually.OK(t, "the status of all pairs", func() error {
				if err := c.sample(0); err != nil {
					return err
				}
				for gpu := range 4 {
					if diff := cmp.Diff(want[gpu], c.cellsOf(field.P2PStatus, gpu, "peer_gpu")); diff != "" {
						return fmt.Errorf("status %d, GPU %d (-want +got):\n%s", status, gpu, diff)
					}
				}
				return nil
			})
		}
	})
}
