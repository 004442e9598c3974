//go:build linux && cgo

package dcgm

import (
	"errors"
	"testing"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/pkg/collector"
)

// TestHush: a GPU that has only blanks where it had values is lost; one that never
// had any, that lacks a few or whose profiling is paused is not.
func TestHush(t *testing.T) {
	e := simulate(t, dcgmtest.Config{GPUs: 3})
	blank := dcgmtest.Blank(dcgmtest.NotFound)
	fields := []int{150, 155, 252, 251, 203}
	for _, f := range fields {
		e.Set(dcgmtest.GPU(2), f, blank)
	}
	c := open1(t, remote(e), "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_SM_ACTIVE")
	e.Set(dcgmtest.GPU(2), 1002, blank)
	want := func(what string, lost bool) {
		t.Helper()
		err := c.sample(0)
		var one *collector.DeviceError
		switch {
		case !lost && err != nil:
			t.Errorf("%s: %v", what, err)
		case lost && (!errors.As(err, &one) || one.Device != 1 || !errors.Is(err, collector.ErrDeviceLost)):
			t.Errorf("%s: %v, want that device 1 is lost", what, err)
		}
	}
	want("GPU 2 has no values from the start", false)
	e.Set(dcgmtest.GPU(1), 1002, dcgmtest.Status(-54))
	want("profiling of GPU 1 is paused", false)
	for _, f := range fields[:4] {
		e.Set(dcgmtest.GPU(1), f, blank)
	}
	want("GPU 1 has one value", false)
	for _, f := range fields[:3] {
		e.Unset(dcgmtest.GPU(1), f)
	}
	want("GPU 1 has most of its values", false)
	for _, f := range fields[1:] {
		e.Set(dcgmtest.GPU(1), f, blank)
	}
	want("GPU 1 has one value left", false)
	e.Set(dcgmtest.GPU(1), fields[0], blank)
	want("GPU 1 has none", true)
	e.Unset(dcgmtest.GPU(1), 150)
	want("GPU 1 is back", false)
}
