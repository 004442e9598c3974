//go:build linux && cgo

package dcgm

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// TestValuesOfEach: each value comes where it belongs, by each way to an engine.
func TestValuesOfEach(t *testing.T) {
	for name, h := range map[string]hardware{"host engine": {gpus: 8}, "TCP": {gpus: 8, tcp: true}, "embedded": {gpus: 8, embedded: true}} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, h, func(t *testing.T, m machine) {
				value := func(gpu, i int) float64 { return float64(1 + 10*i + gpu) }
				for gpu := range 8 {
					for i, name := range settableNames {
						m.set(gpu, name, value(gpu, i))
					}
				}
				c := started(t, m, settableNames...)
				for gpu := range 8 {
					for i, name := range settableNames {
						c.untilValue(t, nvmltest.UUID(gpu), name, value(gpu, i))
					}
				}
			})
		})
	}
}

// TestValuesChange: a number is what it is, none of it a blank, and what the driver
// does not have is absent, for whatever reason; the others stay.
func TestValuesChange(t *testing.T) {
	onBoth(t, hardware{gpus: 2}, func(t *testing.T, m machine) {
		for gpu := range 2 {
			for _, name := range settableNames {
				m.set(gpu, name, 40)
			}
		}
		c := started(t, m, settableNames...)
		id := nvmltest.UUID(1)
		others := func(but, when string) {
			t.Helper()
			for _, name := range settableNames {
				if v, _ := c.value(t, id, name); name != but && v != 40 {
					t.Errorf("%s: %s is %v, want 40", when, name, v)
				}
			}
			if v, _ := c.value(t, nvmltest.UUID(0), temperature); v != 40 {
				t.Errorf("%s: the temperature of the other GPU is %v, want 40", when, v)
			}
		}
		for _, name := range settableNames {
			c.untilValue(t, id, name, 40)
		}
		f := func(name string, v float64) {
			t.Helper()
			m.set(1, name, v)
			c.untilValue(t, id, name, v)
			others(name, name)
			m.set(1, name, 40)
			c.untilValue(t, id, name, 40)
		}
		f(temperature, 0)
		f(power, 0)
		f(power, 351.25)
		f(energy, 1<<52)
		f(energy, 0x7ffffff0) // what is a blank in 32 bits
		names := []string{temperature, power, energy}
		for _, name := range names {
			for _, why := range []int{dcgmtest.Null, dcgmtest.NotFound, dcgmtest.NotPermitted} {
				m.blank(1, name, why)
				c.untilValue(t, id, name, math.NaN())
				others(name, fmt.Sprintf("blank %d", why))
				m.set(1, name, 40)
				c.untilValue(t, id, name, 40)
			}
		}
		for _, name := range names { // an engine may never ask for it again
			m.blank(1, name, dcgmtest.NotSupported)
			c.untilValue(t, id, name, math.NaN())
		}
		if v, _ := c.value(t, nvmltest.UUID(0), temperature); v != 40 {
			t.Errorf("the temperature of the other GPU is %v, want 40", v)
		}
	})
}

// TestNotDueStays: a cell that is not due keeps what it has, and what is due seldom is
// asked for seldom.
func TestNotDueStays(t *testing.T) {
	onBoth(t, hardware{gpus: 2}, func(t *testing.T, m machine) {
		c := started(t, m, temperature, power, energy, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL")
		const kept = -7
		columns := c.sources[0].Columns()
		for i, col := range columns {
			c.due[0][i], c.row[0][i] = col.Field == 150, kept
		}
		if e := m.simulation(); e != nil {
			e.ResetCalls()
		}
		if err := c.sources[0].Sample(c.row[0], c.due[0]); err != nil {
			t.Fatal(err)
		}
		for i, col := range columns {
			if due := col.Field == 150; due == (c.row[0][i] == kept) {
				t.Errorf("field %d, due %v, became %v", col.Field, due, c.row[0][i])
			}
		}
		if e := m.simulation(); e != nil && e.MostValues() != 2*3 {
			t.Errorf("asked for %d values in one call, want the 3 fields of 2 GPUs that are read as often as the due one", e.MostValues())
		}
	})
}

// TestEveryField: all that a list can ask for is more than an engine takes in one
// group, of profiling and of the rest; and costs no memory.
func TestEveryField(t *testing.T) {
	for name, h := range map[string]hardware{"host engine": {gpus: 4}, "embedded": {gpus: 4, embedded: true}} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, h, func(t *testing.T, m machine) {
				c := started(t, m, everything()...)
				columns := 0
				for _, s := range c.sources {
					columns += len(s.Columns())
				}
				if columns < 4*300 {
					t.Errorf("only %d columns", columns)
				}
				id := nvmltest.UUID(3)
				c.until(t, 0, "values of all kinds", func(err error) bool {
					return err == nil && c.has(t, id, temperature) && c.has(t, id, power) && c.has(t, id, "DCGM_FI_PROF_SM_ACTIVE") && c.has(t, id, "DCGM_FI_PROF_PCIE_RX_BYTES")
				})
				for i, s := range c.sources {
					for j, col := range s.Columns() {
						d, _ := field.ByID(col.Field)
						v := c.row[i][j]
						if m.simulation() != nil && math.IsNaN(v) && !d.Event {
							t.Fatalf("%s of %s has no value", d.Name, s.Devices()[col.Device].ID)
						}
						if !d.Event && (v < d.Min || v > d.Max) {
							t.Errorf("%s of %s is %v, outside of [%v, %v]", d.Name, s.Devices()[col.Device].ID, v, d.Min, d.Max)
						}
					}
					if raceEnabled {
						continue
					}
					if n := testing.AllocsPerRun(10, func() { _ = s.Sample(c.row[i], c.due[i]) }); n != 0 {
						t.Errorf("source %d: %v allocations a sample of %d columns", i, n, len(s.Columns()))
					}
				}
			})
		})
	}
}

// TestDriverHangs: values that do not move are reported, whatever the engine continues to
// answer with; when the driver's calls return, all is well.
func TestDriverHangs(t *testing.T) {
	for name, h := range map[string]hardware{"host engine": {gpus: 3}, "embedded": {gpus: 3, embedded: true}} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, h, func(t *testing.T, m machine) {
				c := started(t, m, temperature, power, peersName, healthName)
				if m.simulation() != nil { // it needs no patience
					begin := time.Now()
					c.readings(0).now = func() time.Time { return begin.Add(50 * time.Since(begin)) }
				}
				release := m.hang()
				c.until(t, 0, "all stalled", func(err error) bool {
					for d := range 3 {
						if !errors.Is(deviceError(err, d), collector.ErrStalled) {
							return false
						}
					}
					return true
				})
				release()
				c.until(t, 0, "values again", func(err error) bool { return err == nil })
			})
		})
	}
}

// TestLossAndReturn: a GPU that is gone is lost, also for a rescan if the engine
// lists it no longer; the others stay, and it comes back.
func TestLossAndReturn(t *testing.T) {
	onBoth(t, hardware{gpus: 4}, func(t *testing.T, m machine) {
		c := started(t, m, settableNames...)
		m.lose(2)
		c.until(t, 0, "GPU 2 lost, and no other", func(err error) bool {
			for d := range 4 {
				if errors.Is(deviceError(err, d), collector.ErrDeviceLost) != (d == 2) {
					return false
				}
			}
			return true
		})
		if !c.has(t, nvmltest.UUID(3), temperature) {
			t.Error("GPU 3 has no temperature")
		}
		if changed, err := c.Rescan(t.Context()); err != nil || changed != (m.simulation() == nil) {
			t.Errorf("rescan without GPU 2: %v, %v", changed, err)
		}
		m.restore(2)
		c.until(t, 0, "GPU 2 again", func(err error) bool { return err == nil && c.has(t, nvmltest.UUID(2), temperature) })
	})
}

// TestPause: a list without profiling fields, which is what a pause is, ends that the
// engine reads them, and a list with them begins it again.
func TestPause(t *testing.T) {
	onBoth(t, hardware{gpus: 1}, func(t *testing.T, m machine) {
		const profiling = "DCGM_FI_PROF_SM_ACTIVE"
		id := nvmltest.UUID(0)
		value := func(c *opened) bool { return c.has(t, id, profiling) }
		before := open1(t, m.options(), temperature, profiling)
		before.until(t, 0, "a profiling value", func(error) bool { return value(before) })
		paused := open1(t, m.options(), temperature)
		if err := before.Close(); err != nil {
			t.Fatal(err)
		}
		newest := func(fields ...uint16) []cell { return paused.newest(t, 0, fields...) }
		at := newest(150, 1002)
		polls := map[int64]bool{}
		paused.until(t, 0, "more polls of the engine", func(error) bool {
			polls[newest(150)[0].micros] = true
			return len(polls) > 5
		})
		if now := newest(150, 1002); now[1].status == statusOK && now[1].micros != at[1].micros {
			t.Errorf("the engine continues reading profiling fields: %+v, then %+v", at, now)
		}
		after := open1(t, m.options(), temperature, profiling)
		after.until(t, 0, "a profiling value again", func(error) bool { return value(after) })
		if got := after.supplied(); !slices.Contains(got, 1002) {
			t.Errorf("columns of %v", got)
		}
	})
}
