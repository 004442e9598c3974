//go:build linux && cgo

package dcgm

import (
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// TestManyClients: several collectors on one engine, in one process or several (their groups have random names), each have
// all their values, and so has the one that takes the place of another.
func TestManyClients(t *testing.T) {
	e := simulate(t, dcgmtest.Config{GPUs: 2})
	names := []string{temperature, power, energy, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_NVLINK_GET_STATE", healthName}
	values := func(c *opened) (n int) {
		c.mustSample(t)
		for _, v := range slices.Concat(c.row...) {
			if !math.IsNaN(v) {
				n++
			}
		}
		return n
	}
	all := []*opened{open1(t, remote(e), names...)}
	want := values(all[0])
	for range 4 {
		all = append(all, open1(t, remote(e), names...))
	}
	if err := all[0].Close(); err != nil {
		t.Fatal(err)
	}
	all[0] = open1(t, remote(e), names...)
	for i, c := range all {
		if got := values(c); got != want || want == 0 {
			t.Errorf("client %d: %d values, want %d", i, got, want)
		}
	}
}

// TestRefusals: only a field that the engine does not know or support is left out. Any
// other refusal makes Open fail, and so does an engine that offers nothing.
func TestRefusals(t *testing.T) {
	for code, leftOut := range map[int]bool{-6: true, -13: true, -17: true, -36: true, -3: false, -24: false, -26: false, -34: false, -54: false} {
		e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 1})
		e.Refuse(dcgmtest.All(dcgmtest.KindGPU), 150, code)
		_, err := openAs(t, remote(e), temperature, power)
		if leftOut != (err == nil) {
			t.Errorf("code %d: %v, want an error: %v", code, err, !leftOut)
		}
		if _, err := openAs(t, remote(e), temperature); errors.Is(err, collector.ErrNothingToRead) != leftOut || err == nil {
			t.Errorf("code %d for the only field: %v, want %v: %v", code, err, collector.ErrNothingToRead, leftOut)
		}
		if n := e.Counts().Connections; leftOut && n != 1 || !leftOut && n != 0 {
			t.Errorf("code %d: %d connections", code, n)
		}
	}
	e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 1})
	if _, err := openAs(t, remote(e), "DCGM_FI_DEV_CPU_UTIL_TOTAL"); !errors.Is(err, collector.ErrNothingToRead) {
		t.Errorf("a list for CPUs on a node without: %v", err)
	}
}

// TestStarting: until the profiling fields have their first values, which come after
// the others, nothing was sampled, and events wait; but not for ever.
func TestStarting(t *testing.T) {
	const profiling = "DCGM_FI_PROF_SM_ACTIVE"
	e := simulate(t, dcgmtest.Config{GPUs: 1})
	e.Set(dcgmtest.GPU(0), 1002, dcgmtest.Blank(dcgmtest.NotFound))
	for _, late := range []bool{true, false} {
		c := open1(t, remote(e), temperature, profiling, xidCount)
		e.XID(0, 13)
		r := c.readings(0)
		clock := time.Now()
		r.now = func() time.Time { return clock }
		for range 2 {
			if err := c.sample(0); !errors.Is(err, errStarting) {
				t.Errorf("before the first value: %v", err)
			}
		}
		if late {
			e.Unset(dcgmtest.GPU(0), 1002)
		} else {
			clock = clock.Add(startPatience)
		}
		if err := c.sample(0); errors.Is(err, errStarting) {
			t.Errorf("still starting: %v", err)
		}
		if got := c.cellsOf(field.XIDEvent, 0, "slot"); got["0"] != " 13" {
			t.Errorf("XIDs in the first row: %v", got)
		}
		if has := c.has(t, c.sources[0].Devices()[0].ID, profiling); has != late {
			t.Errorf("profiling value: %v, want %v", has, late)
		}
		e.Set(dcgmtest.GPU(0), 1002, dcgmtest.Blank(dcgmtest.NotFound))
		if err := c.sample(0); late && err != nil {
			t.Errorf("a blank later on: %v", err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
