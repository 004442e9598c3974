//go:build linux && cgo

package dcgm

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/eventually"
	"warpgauge/pkg/field"
)

// ledger is what collectors have told of XIDs: by GPU, in the order in which it came.
type ledger map[string][]float64

// take samples a collector once.
func (l ledger) take(tb testing.TB, c *opened) {
	tb.Helper()
	if err := c.sample(0); err != nil && !errors.Is(err, collector.ErrColumnsChanged) { // health may have a new reason
		tb.Fatal(err)
	}
	devices := c.sources[0].Devices()
	for i, col := range c.sources[0].Columns() {
		if v := c.row[0][i]; col.Field == field.XIDEvent && !math.IsNaN(v) {
			id := devices[col.Device].ID
			l[id] = append(l[id], v)
		}
	}
}

// settle waits until there is what was wanted, and nothing beside it. That nothing
// comes later shows with the XIDs after it.
func (l ledger) settle(tb testing.TB, want ledger, cs ...*opened) {
	tb.Helper()
	eventually.OK(tb, "XIDs as events", func() error {
		for _, c := range cs {
			l.take(tb, c)
		}
		return l.missing(want)
	})
}

func (l ledger) missing(want ledger) error {
	if !maps.EqualFunc(want, l, slices.Equal) {
		return fmt.Errorf("there are %v, want %v", l, want)
	}
	return nil
}

// TestEachXIDOnce: however many there are between two samples, those from before
// anybody listened are not told, and none is told twice.
func TestEachXIDOnce(t *testing.T) {
	for name, h := range map[string]hardware{"host engine": {gpus: 2}, "embedded": {gpus: 2, embedded: true}} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, h, func(t *testing.T, m machine) {
				a, b := nvmltest.UUID(0), nvmltest.UUID(1)
				c := settled(t, m, temperature, xidCount)
				told, want := ledger{}, ledger{}
				for fence := range 2 {
					for _, code := range []int{13, 13, 100 + fence} {
						m.xid(0, code)
						want[a] = append(want[a], float64(code))
					}
					m.xid(1, 31)
					want[b] = append(want[b], 31)
					told.settle(t, want, c)
				}
				late := settled(t, m, temperature, xidCount)
				m.xid(1, 45)
				want[b] = append(want[b], 45)
				told.settle(t, want, c, late)
			})
		})
	}
}

// TestManyXIDs: more of them than a row or a call can hold come with the next samples.
// NVIDIA's engine takes one from the driver each second.
func TestManyXIDs(t *testing.T) {
	onBoth(t, hardware{gpus: 1}, func(t *testing.T, m machine) {
		c := settled(t, m, temperature, xidCount)
		told, want, gpu := ledger{}, ledger{}, nvmltest.UUID(0)
		many := 150
		if m.simulation() == nil {
			many = 2 * xidSlots
		}
		for i := range many {
			m.xid(0, 100+i)
			want[gpu] = append(want[gpu], float64(100+i))
		}
		told.settle(t, want, c)
	})
}

// TestXIDsWhileOneTakesOver: while two collectors live side by side the rows of the older
// have every XID, and those of the younger, which count from its end on, what comes
// after, and nothing that the older has told.
func TestXIDsWhileOneTakesOver(t *testing.T) {
	onBoth(t, hardware{gpus: 1}, func(t *testing.T, m machine) {
		gpu := nvmltest.UUID(0)
		told, want, before := ledger{}, ledger{}, ledger{}
		raise := func(code int, counts *opened, beside ...*opened) {
			t.Helper()
			m.xid(0, code)
			want[gpu] = append(want[gpu], float64(code))
			eventually.OK(t, "an XID as an event", func() error {
				told.take(t, counts)
				for _, c := range beside {
					before.take(t, c)
				}
				return told.missing(want)
			})
		}
		older := settled(t, m, temperature, xidCount)
		for n := range 3 {
			raise(1+10*n, older)
			younger := settled(t, m, power, xidCount)
			raise(2+10*n, older, younger)
			raise(3+10*n, older)
			if err := older.Close(); err != nil {
				t.Fatal(err)
			}
			raise(4+10*n, younger)
			older = younger
		}
	})
}

// TestHealthJudged: every watch has a value from the first sample on; a reason that is
// new takes a new binding, for which it is blank until then.
func TestHealthJudged(t *testing.T) {
	for name, h := range map[string]hardware{"host engine": {gpus: 3}, "embedded": {gpus: 3, embedded: true}} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, h, func(t *testing.T, m machine) {
				names := []string{healthName, temperature}
				c := settled(t, m, names...)
				for gpu := range 3 {
					if diff := cmp.Diff(well(), c.told(field.GPUHealth, gpu, "health_watch")); diff != "" {
						t.Errorf("GPU %d (-want +got):\n%s", gpu, diff)
					}
				}
				m.sick(1)
				c.until(t, 0, "a wish for a column of the new reason", func(err error) bool { return errors.Is(err, collector.ErrColumnsChanged) })
				if got := c.told(field.GPUHealth, 1, "health_watch"); got["MEM"] != "" || got["SM"] != "DCGM_FR_OK 0" {
					t.Errorf("a watch whose reason has no column must be blank, and no other: %v", got)
				}
				next := settled(t, m, names...)
				if err := c.Close(); err != nil {
					t.Fatal(err)
				}
				for range 3 {
					next.mustSample(t)
					for gpu := range 3 {
						want := well()
						if gpu == 1 {
							want["MEM"] = "DCGM_FR_XID_ERROR 10"
						}
						if diff := cmp.Diff(want, next.told(field.GPUHealth, gpu, "health_watch")); diff != "" {
							t.Errorf("GPU %d (-want +got):\n%s", gpu, diff)
						}
					}
				}
			})
		})
	}
}

// TestPeersOfEach: each GPU has each other once, with the status that the driver tells.
func TestPeersOfEach(t *testing.T) {
	onBoth(t, hardware{gpus: 4}, func(t *testing.T, m machine) {
		c := settled(t, m, peersName)
		for status := range linkStatuses {
			m.setPeers(0, 1, status)
			want := []map[string]string{{}, {}, {}, {}}
			for a := range 4 {
				for b := range 4 {
					if a != b {
						want[a][fmt.Sprint(b)] = "OK 0"
					}
				}
			}
			want[0]["1"] = fmt.Sprintf("%s %d", linkStatuses[status], status)
			want[1]["0"] = want[0]["1"]
			eventually.OK(t, "the status of all pairs", func() error {
				if err := c.sample(0); err != nil {
					return err
				}
				for gpu := range 4 {
					if diff := cmp.Diff(want[gpu], c.told(field.P2PStatus, gpu, "peer_gpu")); diff != "" {
						return fmt.Errorf("status %d, GPU %d (-want +got):\n%s", status, gpu, diff)
					}
				}
				return nil
			})
		}
	})
}
