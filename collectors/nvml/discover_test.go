//go:build linux && cgo

package nvml

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// simulatedNode is a discovery on a simulated node.
type simulatedNode struct {
	*discovery
	lib *library
}

// discoveryOn opens the library of a simulated node.
func discoveryOn(tb testing.TB, n *nvmltest.Node) *simulatedNode {
	tb.Helper()
	o := at(n).withDefaults(Name)
	l := testkit.Get(process.open(tb.Context(), o))(tb)
	d := &discovery{lib: l, o: o, pending: &pending{patience: o.Patience}}
	tb.Cleanup(func() {
		d.pending.all.Wait()
		must(tb, l.close())
	})
	return &simulatedNode{d, l}
}

func (d *discovery) mustFind(tb testing.TB) []*gpu {
	tb.Helper()
	gpus := testkit.Get(d.gpus(tb.Context()))(tb)
	return gpus
}

func devicesOf(gpus []*gpu) (out []collector.Device) {
	for _, g := range gpus {
		out = append(out, g.device)
		for _, in := range g.instances {
			out = append(out, in.device)
		}
	}
	return out
}

// h100 is GPU i of a simulated DGX H100.
func h100(i int) collector.Device {
	n := strconv.Itoa(i)
	return collector.Device{
		ID: nvmltest.UUID(i), Level: field.GPU, GPU: n, UUID: nvmltest.UUID(i), PCIBusID: parsePCI(nvmltest.PCI(i)),
		Node: "nvidia" + n, Model: "NVIDIA H100 80GB HBM3",
	}
}

// TestDiscoveryOfTheBroken checks that the kernel identifies a lost GPU and that the other GPUs are unaffected.
func TestDiscoveryOfTheBroken(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 4})
	d := discoveryOn(t, n)
	f := func(function, code string, want error) {
		t.Helper()
		n.Return(1, function, code)
		defer n.Clear(1)
		gpus := d.mustFind(t)
		equal(t, []collector.Device{h100(0), h100(1), h100(2), h100(3)}, devicesOf(gpus), "%s %s", function, code)
		g := gpus[1]
		testkit.ErrorIf(t, !errors.Is(g.err, want) || g.handle != nil, "%s %s: %v, want %v", function, code, g.err, want)
		for _, i := range []int{0, 2, 3} {
			testkit.ErrorIf(t, gpus[i].err != nil, "%s %s: GPU %d: %v", function, code, i, gpus[i].err)
		}
	}
	f("nvmlDeviceGetHandleByIndex_v2", "GPU_IS_LOST", collector.ErrDeviceLost)
	f("nvmlDeviceGetHandleByIndex_v2", "IRQ_ISSUE", collector.ErrDeviceLost)
	f("nvmlDeviceGetHandleByIndex_v2", "RESET_REQUIRED", collector.ErrDeviceLost)
	f("nvmlDeviceGetHandleByIndex_v2", "INSUFFICIENT_POWER", nvml.ERROR_INSUFFICIENT_POWER)
	f("nvmlDeviceGetHandleByIndex_v2", "UNKNOWN", nvml.ERROR_UNKNOWN)
	f("nvmlDeviceGetUUID", "GPU_IS_LOST", collector.ErrDeviceLost)
	f(nvmltest.Every, "GPU_IS_LOST", collector.ErrDeviceLost)
}

func TestDiscoveryOfTheForbidden(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 3})
	d := discoveryOn(t, n)
	n.Return(1, "nvmlDeviceGetHandleByIndex_v2", "NO_PERMISSION")
	equal(t, []collector.Device{h100(0), h100(2)}, devicesOf(d.mustFind(t)), "")
	n.Return(0, "nvmlDeviceGetHandleByIndex_v2", "GPU_IS_LOST")
	equal(t, []collector.Device{h100(0), h100(2)}, devicesOf(d.mustFind(t)), "next to a lost one")
	n.Return(0, "nvmlDeviceGetHandleByIndex_v2", "NO_PERMISSION")
	n.Return(2, "nvmlDeviceGetHandleByIndex_v2", "NO_PERMISSION")
	_, err := d.gpus(t.Context())
	testkit.ErrorIf(t, !errors.Is(err, collector.ErrNoDevices) || !strings.Contains(err.Error(), "permission"), "all forbidden: %v", err)
}

func TestDiscoveryOfNone(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 1})
	d := discoveryOn(t, n)
	n.Remove(0)
	_, err := d.gpus(t.Context())
	testkit.ErrorIf(t, !errors.Is(err, collector.ErrNoDevices), "without GPUs: %v", err)
	n.Return(nvmltest.Host, "nvmlDeviceGetCount_v2", "UNKNOWN")
	_, err = d.gpus(t.Context())
	testkit.ErrorIf(t, !errors.Is(err, nvml.ERROR_UNKNOWN), "without a count: %v", err)
}
