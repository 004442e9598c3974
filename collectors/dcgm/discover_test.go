//go:build linux && cgo

package dcgm

import (
	"math"
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
		if d.ID == nvmltest.UUID(1)+"/link4" {
			t.Errorf("link 4 of GPU 1 is down, and there is %+v", d)
		}
	}
	if diff := cmp.Diff(map[field.Level]int{field.GPU: 8, field.Link: 8*18 - 1 + 4*32, field.Switch: 4}, count); diff != "" {
		t.Errorf("devices by level (-want +got):\n%s", diff)
	}
	driver := []collector.Label{{Name: "DCGM_FI_DRIVER_VERSION", Value: "580.65.06"}}
	for _, want := range []collector.Device{
		{ID: nvmltest.UUID(3), Level: field.GPU, GPU: "3", UUID: nvmltest.UUID(3), PCIBusID: "00000000:20:00.0", Node: "nvidia3", Model: "NVIDIA H100 80GB HBM3", Facts: driver},
		{ID: nvmltest.UUID(3) + "/link5", Parent: nvmltest.UUID(3), Level: field.Link, GPU: "3", UUID: nvmltest.UUID(3), PCIBusID: "00000000:20:00.0", Node: "nvidia3", Model: "NVIDIA H100 80GB HBM3", Labels: []collector.Label{{Name: "nvlink", Value: "5"}}, Facts: driver},
		{ID: "nvswitch2", Level: field.Switch, Labels: []collector.Label{{Name: "nvswitch", Value: "nvswitch2"}}, Facts: driver},
		{ID: "nvswitch2/link31", Parent: "nvswitch2", Level: field.Link, Labels: []collector.Label{{Name: "nvlink", Value: "31"}, {Name: "nvswitch", Value: "nvswitch2"}}, Facts: driver},
	} {
		if diff := cmp.Diff(want, find(t, c, want.ID)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", want.ID, diff)
		}
	}
}

// TestGrace: CPUs and cores, numbered through the node, cores only if asked for.
func TestGrace(t *testing.T) {
	e := simulate(t, dcgmtest.Config{Preset: "gb200"})
	count := func(names ...string) map[field.Level]int {
		t.Helper()
		c := open1(t, remote(e), names...)
		c.mustSample(t)
		out := map[field.Level]int{}
		for _, d := range devices(c) {
			out[d.Level]++
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		return out
	}
	if diff := cmp.Diff(map[field.Level]int{field.GPU: 4, field.CPU: 2}, count("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_CPU_POWER_UTIL_CURRENT")); diff != "" {
		t.Errorf("CPUs (-want +got):\n%s", diff)
	}
	names := []string{"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_CPU_POWER_UTIL_CURRENT", "DCGM_FI_DEV_CPU_UTIL_TOTAL"}
	if diff := cmp.Diff(map[field.Level]int{field.GPU: 4, field.CPU: 2, field.Core: 144}, count(names...)); diff != "" {
		t.Errorf("CPUs and cores (-want +got):\n%s", diff)
	}
	c := open1(t, remote(e), names...)
	for _, want := range []collector.Device{
		{ID: "CPU-1", Level: field.CPU, Labels: []collector.Label{{Name: "cpu", Value: "1"}}},
		{ID: "CPU-1/core143", Parent: "CPU-1", Level: field.Core, Labels: []collector.Label{{Name: "cpucore", Value: "143"}, {Name: "cpu", Value: "1"}}},
		{ID: "CPU-0/core71", Parent: "CPU-0", Level: field.Core, Labels: []collector.Label{{Name: "cpucore", Value: "71"}, {Name: "cpu", Value: "0"}}},
	} {
		got := find(t, c, want.ID)
		got.Facts = nil
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", want.ID, diff)
		}
	}
}

// TestOldEngine: before 4.3 the number of a link does not contain its owner, so
// there are none, which is said once. Everything else is there.
func TestOldEngine(t *testing.T) {
	for version, links := range map[string]bool{"4.2.3": false, "4.3.0": true, "4.4.1": true, "4.5.2": true, "4.6.0": true} {
		e := simulate(t, dcgmtest.Config{GPUs: 1, Version: version})
		c := open1(t, remote(e), "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_NVLINK_GET_STATE", "DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT")
		c.mustSample(t)
		got := 0
		for _, d := range devices(c) {
			if d.Level == field.Link {
				got++
			}
		}
		if want := 18 + 4*32; links && got != want || !links && got != 0 {
			t.Errorf("%s: %d links", version, got)
		}
		if n := c.logs.FilterMessageSnippet("skipping NVLinks").Len(); n != 0 && links || n != 1 && !links {
			t.Errorf("%s: %d lines say that links are left out", version, n)
		}
	}
}

// TestBlankIdentity: DCGM's words for nothing are not labels.
func TestBlankIdentity(t *testing.T) {
	e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 1})
	for which, blank := range []string{"<<<NULL>>>", "<<<NOT_FOUND>>>", "<<<NOT_SUPPORTED>>>", "<<<NOT_PERM>>>"} {
		for _, v := range []dcgmtest.Value{dcgmtest.Blank(which), dcgmtest.Text(blank), dcgmtest.Status(-6)} {
			for _, f := range []int{1, 50, 54, 57} {
				e.Set(dcgmtest.Everything(), f, v)
				e.Set(dcgmtest.GPU(0), f, v)
			}
			e.Set(dcgmtest.GPU(0), 55, dcgmtest.Blank(which))
			c := open1(t, remote(e), "DCGM_FI_DEV_GPU_TEMP", "label DCGM_FI_DRIVER_VERSION")
			want := []collector.Device{{ID: "GPU 0", Level: field.GPU, GPU: "0", Node: "nvidia0"}}
			if diff := cmp.Diff(want, devices(c)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", blank, diff)
			}
			c.mustSample(t)
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestUnsupportedGPUs: injected GPUs are there for --fake-gpus
// alone.
func TestUnsupportedGPUs(t *testing.T) {
	e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 1})
	e.Add(dcgmtest.GPU(1), false)
	for fake, want := range map[bool]int{false: 1, true: 2} {
		o := remote(e)
		o.FakeGPUs = fake
		if got := len(devices(open1(t, o, "DCGM_FI_DEV_GPU_TEMP"))); got != want {
			t.Errorf("fake GPUs %v: %d devices, want %d", fake, got, want)
		}
	}
}

// TestAdapters: network adapters are looked for if the list asks for them, and
// one more or less is noticed.
func TestAdapters(t *testing.T) {
	const health, width, hot = "DCGM_FI_DEV_CONNECTX_HEALTH", "DCGM_FI_DEV_CONNECTX_ACTIVE_PCIE_LINK_WIDTH", "DCGM_FI_DEV_CONNECTX_TEMP_CELSIUS"
	e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 1})
	e.Add(dcgmtest.ConnectX(0), true)
	e.Add(dcgmtest.ConnectX(3), true)
	if got := len(devices(open1(t, remote(e), temperature))); got != 1 {
		t.Errorf("%d devices for a list of GPUs' fields, want the GPU", got)
	}
	c := open1(t, remote(e), temperature, health, width, hot, "label DCGM_FI_DRIVER_VERSION")
	want := collector.Device{ID: "connectx3", Level: field.ConnectX, Labels: []collector.Label{{Name: "connectx", Value: "3"}}, Facts: []collector.Label{{Name: "DCGM_FI_DRIVER_VERSION", Value: "580.65.06"}}}
	if diff := cmp.Diff(want, find(t, c, "connectx3")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	e.Set(dcgmtest.ConnectX(0), 1300, dcgmtest.Number(1))
	e.Set(dcgmtest.ConnectX(0), 1301, dcgmtest.Number(16))
	e.Set(dcgmtest.ConnectX(0), 1310, dcgmtest.Number(54.5))
	e.Set(dcgmtest.ConnectX(3), 1300, dcgmtest.Number(4))
	e.Set(dcgmtest.ConnectX(3), 1301, dcgmtest.Number(8))
	e.Set(dcgmtest.ConnectX(3), 1310, dcgmtest.Status(-6))
	c.mustSample(t)
	for id, values := range map[string][]float64{"connectx0": {1, 16, 54.5}, "connectx3": {4, 8, math.NaN()}} {
		for i, name := range []string{health, width, hot} {
			if got, ok := c.value(t, id, name); !ok || !same(got, values[i]) {
				t.Errorf("%s of %s: %v, want %v", name, id, got, values[i])
			}
		}
	}
	for _, change := range []func(){func() { e.Remove(dcgmtest.ConnectX(0)) }, func() { e.Add(dcgmtest.ConnectX(1), true) }} {
		c := open1(t, remote(e), temperature, hot)
		if changed, err := c.Rescan(t.Context()); changed || err != nil {
			t.Errorf("rescan of what is as before: %v, %v", changed, err)
		}
		change()
		if changed, err := c.Rescan(t.Context()); !changed || err != nil {
			t.Errorf("rescan of what has changed: %v, %v", changed, err)
		}
	}
}

// TestNoAdapters: an engine that cannot list them, being too old or without the
// module, costs nothing else.
func TestNoAdapters(t *testing.T) {
	for code, lines := range map[int]int{-1: 1, -6: 0, -33: 0} {
		e := simulate(t, dcgmtest.Config{Preset: "pcie", GPUs: 1})
		e.RefuseListing(dcgmtest.KindConnectX, code)
		c := open1(t, remote(e), temperature, "DCGM_FI_DEV_CONNECTX_HEALTH")
		c.mustSample(t)
		if got := len(devices(c)); got != 1 {
			t.Errorf("code %d: %d devices, want the GPU", code, got)
		}
		if got := c.logs.FilterMessageSnippet("cannot list entities").Len(); got != lines {
			t.Errorf("code %d: logged %d times, want %d", code, got, lines)
		}
	}
}
