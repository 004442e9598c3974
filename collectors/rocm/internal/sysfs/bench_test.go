package sysfs

import (
	"testing"

	"warpgauge/collectors/rocm/internal/gpumetrics"
	"warpgauge/collectors/rocm/rocmtest"
)

func TestReadAllocatesNothing(t *testing.T) {
	for _, o := range []rocmtest.Options{{GPUs: 1, Deferred: true}, {Model: rocmtest.RX7900, GPUs: 1}} {
		f := open(t, o, 0)
		f.tree.GPUs[0].Set(t, "ras/sdma_err_count", rocmtest.Inaccessible)
		f.tree.GPUs[0].Set(t, "mem_busy_percent", "")
		m := new(gpumetrics.Metrics)
		for i, w := range f.wanted {
			f.due[i] = !perProcess(w)
		}
		tick := func() {
			if f.h.Suspended() || f.h.Metrics(m) != nil || f.h.Read(f.values, f.due) != nil {
				panic("not read")
			}
		}
		tick()
		if n := testing.AllocsPerRun(100, tick); n != 0 {
			t.Errorf("%v allocations in a tick", n)
		}
	}
}
