//go:build linux && cgo

package dcgm

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"warpgauge/collectors/dcgm/dcgmtest"
	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

func devices(c *opened) (out []collector.Device) {
	for _, s := range c.sources {
		out = append(out, s.Devices()...)
	}
	return out
}

func find(tb testing.TB, c *opened, id string) collector.Device {
	tb.Helper()
	s, d := c.device(tb, id)
	return c.sources[s].Devices()[d]
}

// TestDGX: GPUs, links of both ends and switches, each named as the contract says.
func TestDGX(t *testing.T) {
	e := simulate(t, dcgmtest.Config{})
	e.SetLink(dcgmtest.GPU(1), 4, dcgmtest.LinkDown)
	c := open1(t, remote(e), "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_NVLINK_GET_STATE", "DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT", "label DCGM_FI_DRIVER_VERSION")
	count := map[field.Level]int{}
	for _, d := range devices(c) {
		count[d.Level]++
	}
	if diff := cmp.Diff(map[field.Level]int{field.GPU: 8, field.Link: 8*18 - 1 + 4*32, field.Switch: 4}, count); diff != "" {
		t.Errorf("devices by level (-want +got):\n%s", diff)
	}
	driver := []collector.Label{{Name: "DCGM_FI_DRIVER_VERSION", Value: "580.65.06"}}
	for _, want := range []collector.Device{
		{ID: nvmltest.UUID(3), Level: field.GPU, GPU: "3", UUID: nvmltest.UUID(3), PCIBusID: "00000000:20:00.0", Node: "nvidia3", Model: "NVIDIA H100 80GB HBM3", Facts: driver},
		{ID: nvmltest.UUID(3) + "/link5", Parent: nvmltest.UUID(3), Level: field.Link, GPU: "3", UUID: nvmltest.UUID(3), PCIBusID: "00000000:20:00.0", Node: "nvidia3", Model: "NVIDIA H100 80GB HBM3", Link: "5", Facts: driver},
		{ID: "nvswitch2", Level: field.Switch, Switch: "nvswitch2", Facts: driver},
		{ID: "nvswitch2/link31", Parent: "nvswitch2", Level: field.Link, Switch: "nvswitch2", Link: "31", Facts: driver},
	} {
		if diff := cmp.Diff(want, find(t, c, want.ID)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", want.ID, diff)
		}
	}
}
