//go:build linux && cgo

package nvml

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// gpu is one board as discovery found it.
type gpu struct {
	index  int         // NVML's index, which is DCGM's GPU id where both see all GPUs
	handle nvml.Device // go-nvml's; nil where NVML did not answer
	raw    uintptr     // the same as nvmlDevice_t, for calls of our own; 0 where NVML did not answer
	arch   nvml.DeviceArchitecture
	device collector.Device // identity, Facts included

	migCapable bool // has a MIG mode, on or off
	mig        bool // it is on
	// instances are the MIG devices in the order of their ids. A GPU instance that
	// is split is followed by its compute instances.
	instances []instance
	layout    uint64 // what migWatch compares; 0 if it is not known

	err    error       // why NVML did not answer; nothing above but index and device is set then
	silent func() bool // where a call has not returned in time: whether it still has not
}

// instance is a MIG device.
//
// A GPU instance with one compute instance, the usual case, is one device of
// Level Instance. Where it has several, they share its memory: it is a device of
// Level Instance with the handle of the first, to which memory belongs, and each
// of them is one of Level ComputeInstance, to which only what is counted per
// compute instance belongs.
type instance struct {
	handle nvml.Device // the MIG device handle
	raw    uintptr
	gi     int
	ci     int // −1 on a GPU instance that is split
	device collector.Device
}

// errHangs says that a GPU has not answered in time. The call goes on.
var errHangs = errors.New("does not answer")

// gpuError wraps what NVML answers about a whole GPU.
func gpuError(call string, code nvml.Return) error {
	if lost(code) {
		return fmt.Errorf("%w: %s: %w", collector.ErrDeviceLost, call, code)
	}
	return fmt.Errorf("%s: %w", call, code)
}

// lost reports whether an answer means that the GPU cannot be reached at all.
func lost(code nvml.Return) bool {
	switch code {
	case nvml.ERROR_GPU_IS_LOST, nvml.ERROR_GPU_NOT_FOUND, nvml.ERROR_IRQ_ISSUE, nvml.ERROR_RESET_REQUIRED:
		return true
	}
	return false
}

// newGPU is a GPU of which nothing but the index is known. dcgm-exporter makes the
// name of the device node of that.
func newGPU(index int) *gpu {
	n := strconv.Itoa(index)
	return &gpu{
		index: index, arch: nvml.DEVICE_ARCH_UNKNOWN,
		device: collector.Device{Level: field.GPU, GPU: n, Node: "nvidia" + n},
	}
}

// identify asks NVML who the GPU at an index is, and whether MIG is on.
func (l *library) identify(index int) *gpu {
	g := newGPU(index)
	raw, code := l.rawByIndex(index)
	if code != nvml.SUCCESS {
		g.err = gpuError("nvmlDeviceGetHandleByIndex", code)
		return g
	}
	handle, code := l.api.DeviceGetHandleByIndex(index)
	if code != nvml.SUCCESS {
		g.err = gpuError("nvmlDeviceGetHandleByIndex", code)
		return g
	}
	pci, code := handle.GetPciInfo()
	if code == nvml.SUCCESS {
		g.device.PCIBusID = pciAddress{pci.Domain, pci.Bus, pci.Device}.String()
	}
	if g.device.UUID, code = handle.GetUUID(); code != nvml.SUCCESS && (lost(code) || g.device.PCIBusID == "") {
		g.err = gpuError("nvmlDeviceGetUUID", code)
		return g
	}
	if g.device.UUID == "" {
		g.device.UUID = g.device.PCIBusID // boards older than UUIDs
	}
	g.device.ID = g.device.UUID
	g.handle, g.raw = handle, raw
	l.describe(g)
	l.findInstances(g)
	return g
}

// describe adds what a GPU can be without.
func (l *library) describe(g *gpu) {
	if l.has("nvmlDeviceGetName") {
		if name, code := g.handle.GetName(); code == nvml.SUCCESS {
			g.device.Model = name
		}
	}
	// On WSL there is no device node and no number.
	if l.has("nvmlDeviceGetMinorNumber") {
		if minor, code := g.handle.GetMinorNumber(); code == nvml.SUCCESS {
			g.device.Node = "nvidia" + strconv.Itoa(minor)
		}
	}
	if l.has("nvmlDeviceGetArchitecture") {
		if arch, code := g.handle.GetArchitecture(); code == nvml.SUCCESS {
			g.arch = arch
		}
	}
}
