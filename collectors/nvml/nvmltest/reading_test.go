//go:build linux && cgo

package nvmltest_test

import (
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/google/go-cmp/cmp"

	"warpgauge/collectors/nvml/nvmltest"
)

// same fails unless both are equal.
func same[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// ok unwraps an answer that must be a success.
func ok[T any](t *testing.T, what string) func(T, nvml.Return) T {
	return func(v T, ret nvml.Return) T {
		t.Helper()
		if ret != nvml.SUCCESS {
			t.Errorf("%s: %v", what, ret)
		}
		return v
	}
}

func TestReadingsFollowLoad(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 2})
	api := open(t, n)
	n.Freeze(100)
	n.SetLoad(1, nvmltest.Steady(0.5))
	d := device(t, api, 1)
	same(t, "utilisation", ok[nvml.Utilization](t, "utilisation")(d.GetUtilizationRates()), nvml.Utilization{Gpu: 50, Memory: 31})
	same(t, "power", ok[uint32](t, "power")(d.GetPowerUsage()), 70000+310000)
	same(t, "SM clock", ok[uint32](t, "clock")(d.GetClockInfo(nvml.CLOCK_SM)), 1980-45)
	before := ok[uint64](t, "energy")(d.GetTotalEnergyConsumption())
	n.Advance(10 * time.Second)
	// 10 s at 380 W, in mJ.
	same(t, "energy", ok[uint64](t, "energy")(d.GetTotalEnergyConsumption())-before, 3_800_000)
	n.SetLoad(1, nvmltest.Square(0, 1, 4*time.Second, 0.25))
	before = ok[uint64](t, "energy")(d.GetTotalEnergyConsumption())
	n.Advance(8 * time.Second)
	same(t, "energy of a square load", ok[uint64](t, "energy")(d.GetTotalEnergyConsumption())-before, 8*70_000+2*620_000)

	m := ok[nvml.Memory](t, "memory")(d.GetMemoryInfo())
	v2 := ok[nvml.Memory_v2](t, "memory v2")(d.GetMemoryInfo_v2())
	same(t, "total", m.Total, v2.Total)
	same(t, "used counts the reserved part in v1", m.Used, v2.Used+v2.Reserved)
	same(t, "sum of v2", v2.Used+v2.Free+v2.Reserved, v2.Total)
}
