//go:build linux && cgo

package nvml

import (
	"errors"
	"fmt"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// inParent returns an instance of a GPU.
func inParent(parent collector.Device, level field.Level, gi, ci, profile, uuid string) collector.Device {
	d := parent
	d.Level, d.Parent = level, parent.ID
	d.Instance.ID, d.Instance.ComputeID, d.Instance.Profile, d.Instance.UUID = gi, ci, profile, uuid
	d.ID += "/" + gi
	if ci != "" {
		d.Parent = d.ID
		d.ID += "/" + ci
	}
	return d
}

func TestDiscoveryOfInstances(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 2, MIG: map[int][]string{
		0: {"3g.40gb", "1g.10gb", "1g.10gb+me", "1c.2g.20gb", "1c.2g.20gb"},
		1: {},
	}})
	gpus := discoveryOn(t, n).mustFind(t)
	ids := map[string]string{} // UUIDs by GPU and compute instance ID
	for _, in := range n.Instances(0) {
		ids[in.Profile+string(rune('a'+in.CI))] = in.UUID
	}
	p := h100(0)
	want := []collector.Device{
		p,
		inParent(p, field.Instance, "1", "", "3g.40gb", ids["3g.40gba"]),
		inParent(p, field.Instance, "3", "", "2g.20gb", ""),
		inParent(p, field.ComputeInstance, "3", "0", "2g.20gb", ids["1c.2g.20gba"]),
		inParent(p, field.ComputeInstance, "3", "1", "2g.20gb", ids["1c.2g.20gbb"]),
		inParent(p, field.Instance, "7", "", "1g.10gb", ids["1g.10gba"]),
		inParent(p, field.Instance, "8", "", "1g.10gb+me", ids["1g.10gb+mea"]),
		h100(1),
	}
	equal(t, want, devicesOf(gpus), "")
	for _, in := range gpus[0].instances {
		testkit.ErrorIf(t, in.handle == nil, "instance %s has no handle", in.device.ID)
		testkit.Equal(t, fmt.Sprintf("instance %s has the compute instance %d", in.device.ID, in.ci), (in.ci == -1), in.device.Level == field.Instance && in.gi == 3)
	}
	if !gpus[0].mig || !gpus[1].mig || gpus[0].layout == "" || gpus[0].layout == gpus[1].layout {
		t.Errorf("MIG modes %v, %v, layouts %q, %q", gpus[0].mig, gpus[1].mig, gpus[0].layout, gpus[1].layout)
	}
}

func TestProfileName(t *testing.T) {
	f := func(name, want string) {
		t.Helper()
		got := ""
		if m := profileName.FindStringSubmatch(name); m != nil {
			got = m[1]
		}
		testkit.Equal(t, fmt.Sprintf("%q", name), want, got)
	}
	f("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "1g.10gb")
	f("NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb", "3g.20gb")
	f("NVIDIA A100-SXM4-40GB MIG 1g.5gb+me", "1g.5gb+me")
	f("NVIDIA A30 MIG 2g.12gb+me", "2g.12gb+me")
	f("NVIDIA B200 MIG 1g.23gb-me", "1g.23gb-me")
	f("NVIDIA RTX PRO 6000 Blackwell Server Edition MIG 1g.24gb+me.all", "1g.24gb+me.all")
	f("NVIDIA H100 80GB HBM3", "")
	f("MIG", "")
	f("", "")
}

func TestRescan(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 3, MIG: map[int][]string{0: {"1g.10gb", "1g.10gb"}}})
	d := discoveryOn(t, n)
	found := takeInventory(d.mustFind(t))
	f := func(what string, before inventory, grown, shrunk bool) {
		t.Helper()
		g, s := before.compare(takeInventory(d.mustFind(t)))
		testkit.ErrorIf(t, g != grown || s != shrunk, "%s: grown = %v, shrunk = %v; want %v, %v", what, g, s, grown, shrunk)
	}
	f("as it was", found, false, false)
	n.Lose(1)
	f("a GPU is lost: its source says so", found, false, false)
	lost := takeInventory(d.mustFind(t))
	n.Restore(1)
	f("a GPU that was lost for a while", found, false, false)
	f("a GPU that was lost at Open is back", lost, true, false)
	n.Remove(0)
	f("a GPU is gone, and the others have other indexes", found, false, true)
	n.Restore(0)
	n.SetMIG(0, "1g.10gb", "2g.20gb")
	f("other instances", found, true, false)
	n.SetMIG(0, "1g.10gb", "1g.10gb")
	f("the instances of before", found, false, false)
	n.SetMIG(2)
	f("MIG mode was switched on", found, true, false)
	n.NoMIG(2)
	n.NoMIG(0)
	f("MIG mode was switched off", found, true, false)
}

// TestRescanOfAGPUThatIsGone checks that the GPU's source stays for a while and that no GPU is renumbered before it goes.
func TestRescanOfAGPUThatIsGone(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 3})
	c, sources := open(t, at(n))
	rescan := func(when string, want bool) {
		t.Helper()
		got, err := c.Rescan(t.Context())
		testkit.ErrorIf(t, err != nil || got != want, "%s: Rescan = %v, %v; want %v", when, got, err, want)
	}
	rescan("with all GPUs", false)
	n.XID(0, 79)
	n.Remove(0)
	rescan("when one is gone", false)
	row, due := make([]float64, 1), []bool{true}
	err := sources[0].Sample(row, due)
	testkit.ErrorIf(t, !errors.Is(err, collector.ErrDeviceLost), "its source: %v, want %v", err, collector.ErrDeviceLost)
	if err := sources[1].Sample(row, due); err != nil || sources[1].Devices()[0].GPU != "1" {
		t.Errorf("the next: GPU %s, %v", sources[1].Devices()[0].GPU, err)
	}
	c.gone = c.gone.Add(-goneFor)
	rescan("later", true)
	n.Restore(0)
	rescan("when it is back", false)
	n.Remove(0)
	rescan("when it is gone again", false)
}

// TestLayoutUnknown checks that a missing answer does not count as a change.
func TestLayoutUnknown(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 1, MIG: map[int][]string{0: {"1g.10gb"}}})
	d := discoveryOn(t, n)
	g := d.mustFind(t)[0]
	for _, f := range []string{"nvmlDeviceGetMigMode", "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetUUID"} {
		n.Return(0, f, "UNKNOWN")
		testkit.ErrorIf(t, d.lib.migChanged(g), "%s fails: taken for a change", f)
		n.Clear(0)
	}
}

// TestUnreadInstances checks that instances that cannot be read are counted and logged, and indexes without one are not.
func TestUnreadInstances(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 3, MIG: map[int][]string{0: {"1g.10gb"}, 1: {"1g.10gb"}}})
	n.Return(1, "nvmlDeviceGetMigDeviceHandleByIndex", "NO_PERMISSION")
	n.Return(2, "nvmlDeviceGetMigMode", "NO_PERMISSION")
	core, logs := observer.New(zap.WarnLevel)
	o := at(n)
	o.Log = zap.New(core)
	c, sources := open(t, o)
	for _, gpu := range []string{"1", "2"} {
		testkit.Has(t, "what is said of it", sources[1].Devices()[0].Unread, "MIG instances: nvml")
		got := logs.FilterMessageSnippet("cannot read all MIG instances of a GPU").FilterField(zap.String("gpu", gpu)).Len()
		testkit.ErrorIf(t, got != 1 || logs.Len() != 2 || c.LeftOut() != 2, "GPU %s: %d log lines %v, left out %d, want 1 of each", gpu, got, logs.All(), c.LeftOut())
	}
	testkit.Equal(t, "devices of the GPU without instances", 1, len(sources[1].Devices()))
}

// TestUnreadLinks checks that the GPU reports links that NVML refuses to read.
func TestUnreadLinks(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{Preset: "h100-sxm", GPUs: 1})
	n.Return(0, "nvmlDeviceGetNvLinkState", "NO_PERMISSION")
	_, sources := openList(t, at(n), listOf(t, csvOf([]string{"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_NVLINK_GET_STATE"})))
	testkit.Has(t, "what is said of the GPU", sources[0].Devices()[0].Unread, "cannot read its NVLinks: nvmlDeviceGetNvLinkState: ")
}
