//go:build linux && cgo

package dcgm

import (
	"errors"
	"slices"
	"testing"
	"time"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/pkg/collector"
)

// TestBlanked: a GPU that has only blanks where it had values is lost; one that never
// had any, that lacks a few or whose profiling is paused is not.
func TestBlanked(t *testing.T) {
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

// TestBlankedOverBlocks: a block that is read seldom keeps the values of before while the
// others are blank already, and what was not read for that long says nothing.
func TestBlankedOverBlocks(t *testing.T) {
	const second = int64(time.Second / time.Microsecond)
	fast := &block{fields: []uint16{150, 155, 252}, most: []int{0}}
	slow := &block{fields: []uint16{230, 391}, most: []int{0}}
	read := func(fastValues int, fastAt int64, slowValues int, slowAt int64) bool {
		var h blanked
		h.add(fast, 0, fastValues, 3-fastValues, fastAt)
		h.add(slow, 0, slowValues, 2-slowValues, slowAt)
		return h.all(2 * time.Second)
	}
	const begin = int64(1000) * 1_000_000
	for _, tt := range []struct {
		what       string
		fast       int
		fastAt     int64
		slow       int
		slowAt     int64
		wantSilent bool
	}{
		{"all there", 3, begin, 2, begin, false},
		{"one blank", 2, begin + 1*second, 2, begin, false},
		{"the fast ones blank, the slow ones as old", 0, begin + 2*second, 2, begin, false},
		{"the fast ones blank, the slow ones older than that", 0, begin + 3*second, 2, begin, true},
		{"the fast ones back", 1, begin + 4*second, 2, begin, false},
		{"the fast ones blank, the slow ones read since", 0, begin + 5*second, 2, begin + 5*second, false},
		{"all blank", 0, begin + 6*second, 0, begin + 6*second, true},
	} {
		if got := read(tt.fast, tt.fastAt, tt.slow, tt.slowAt); got != tt.wantSilent {
			t.Errorf("%s: fell silent = %v, want %v", tt.what, got, tt.wantSilent)
		}
	}
}

// TestFieldsOfTheNode: they continue for a GPU that is gone, and are counted for none.
func TestFieldsOfTheNode(t *testing.T) {
	b := &block{fields: []uint16{1, 150}, entities: []entity{{kindGPU, 0}}}
	b.divide(1)
	if want := []bool{true, false}; !slices.Equal(b.ofNode, want) {
		t.Errorf("driver version and temperature are the node's: %v, want %v", b.ofNode, want)
	}
}
