//go:build linux && cgo

package nvml

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// gpu is a board that discovery found.
type gpu struct {
	index  int              // NVML's index; equals DCGM's GPU ID if both see all GPUs
	handle nvml.Device      // nil if NVML did not answer
	reader device           // the same board, for readings
	device collector.Device // identity, without Facts

	migCapable bool // has a MIG mode, on or off
	mig        bool // MIG is on
	// instances holds the MIG devices in the order of their IDs. A split GPU instance is followed by its compute instances.
	instances []instance
	layout    string // see library.layout

	err    error       // why NVML did not answer; then only index and device are set
	silent func() bool // whether the call that hung is still running; nil if none hung
}

// instance is a MIG device.
//
// A GPU instance with one compute instance, the usual case, is one device of Level Instance. A GPU instance with several
// compute instances is a device of Level Instance, whose memory is read through the handle of the first, followed by one
// device of Level ComputeInstance for each, which only has the readings that NVML counts per compute instance.
type instance struct {
	handle nvml.Device // the MIG device handle
	reader device
	gi     int
	ci     int // −1 for a split GPU instance
	device collector.Device
}

// errHangs means that a GPU has not answered in time. The call is still running.
var errHangs = errors.New("does not answer")

// gpuError wraps NVML's answer about a whole GPU.
func gpuError(call string, code nvml.Return) error {
	if lost(code) {
		return fmt.Errorf("%w: %s: %w", collector.ErrDeviceLost, call, code)
	}
	return fmt.Errorf("%s: %w", call, code)
}

// lost reports whether a code means that the GPU is unreachable.
func lost(code nvml.Return) bool {
	return slices.Contains([]nvml.Return{nvml.ERROR_GPU_IS_LOST, nvml.ERROR_GPU_NOT_FOUND, nvml.ERROR_IRQ_ISSUE, nvml.ERROR_RESET_REQUIRED}, code)
}

// newGPU returns a GPU with only its index known. The device node is a guess from the index, as in dcgm-exporter.
func newGPU(index int) *gpu {
	n := strconv.Itoa(index)
	return &gpu{
		index:  index,
		device: collector.Device{Level: field.GPU, GPU: n, Node: "nvidia" + n},
	}
}

// tidy turns a driver's text into a valid label value.
func tidy(s string) string { return strings.ToValidUTF8(strings.TrimSpace(s), "\uFFFD") }

// identify asks NVML for the GPU at an index and for its MIG mode.
func (l *library) identify(index int, heard func(index int)) *gpu {
	g := newGPU(index)
	board, code := l.api.DeviceGetHandleByIndex(index)
	heard(index)
	if code != nvml.SUCCESS {
		g.err = gpuError("nvmlDeviceGetHandleByIndex_v2", code)
		return g
	}
	pci, code := board.GetPciInfo()
	if code == nvml.SUCCESS {
		g.device.PCIBusID = busID(pci.Domain, pci.Bus, pci.Device)
	}
	uuid, code := board.GetUUID()
	if code != nvml.SUCCESS && (lost(code) || g.device.PCIBusID == "") {
		g.err = gpuError("nvmlDeviceGetUUID", code)
		return g
	}
	if code == nvml.SUCCESS {
		g.device.UUID = tidy(uuid)
	}
	g.device.UUID = cmp.Or(g.device.UUID, g.device.PCIBusID) // old boards have no UUID
	g.device.ID = g.device.UUID
	g.handle, g.reader = board, &handle{Device: board, lib: l}
	l.describe(g)
	l.findInstances(g)
	return g
}

// describe sets the optional properties of a GPU.
func (l *library) describe(g *gpu) {
	if l.has("nvmlDeviceGetName") {
		if name, code := g.handle.GetName(); code == nvml.SUCCESS {
			g.device.Model = tidy(name)
		}
	}
	// WSL has neither a device node nor a minor number.
	if l.has("nvmlDeviceGetMinorNumber") {
		const most = 1 << 20 // MINORMASK of Linux
		if minor, code := g.handle.GetMinorNumber(); code == nvml.SUCCESS && minor >= 0 && minor < most {
			g.device.Node = "nvidia" + strconv.Itoa(minor)
		}
	}
}

// maxInstances bounds the MIG devices per GPU if the library does not say how many there can be.
const maxInstances = 64

// unreadInstances begins a Device.Unread.
const unreadInstances = "cannot read all its MIG instances: "

// findInstances sets the MIG mode and the instances of a GPU. It skips an instance that it cannot read.
func (l *library) findInstances(g *gpu) {
	if !l.hasAll("nvmlDeviceGetMigMode", "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex",
		"nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId") {
		return
	}
	mode, _, code := g.handle.GetMigMode()
	if code != nvml.SUCCESS {
		if code != nvml.ERROR_NOT_SUPPORTED {
			g.device.Unread = unreadInstances + gpuError("nvmlDeviceGetMigMode", code).Error()
		}
		return
	}
	g.migCapable, g.mig = true, mode == nvml.DEVICE_MIG_ENABLE
	g.layout = l.layout(g.handle) // before the instances, so that a change in between is noticed later
	if !g.mig {
		return
	}
	count, code := g.handle.GetMaxMigDeviceCount()
	if code != nvml.SUCCESS {
		count = maxInstances
	}
	var found []instance
	for i := range min(count, maxInstances) {
		switch in, err := l.instanceAt(g, i); {
		case err == nil:
			found = append(found, in)
		case !errors.Is(err, nvml.ERROR_NOT_FOUND) && !errors.Is(err, nvml.ERROR_INVALID_ARGUMENT): // these mean a gap
			g.device.Unread = unreadInstances + err.Error()
		}
	}
	g.instances = arrange(g.device, found)
}

// instanceAt returns the MIG device at an index. The indexes have gaps.
func (l *library) instanceAt(g *gpu, index int) (in instance, err error) {
	mig, code := g.handle.GetMigDeviceHandleByIndex(index)
	if code != nvml.SUCCESS {
		return in, gpuError("nvmlDeviceGetMigDeviceHandleByIndex", code)
	}
	in = instance{handle: mig, reader: &handle{Device: mig, lib: l}}
	if in.gi, code = mig.GetGpuInstanceId(); code != nvml.SUCCESS {
		return in, gpuError("nvmlDeviceGetGpuInstanceId", code)
	}
	if in.ci, code = mig.GetComputeInstanceId(); code != nvml.SUCCESS {
		return in, gpuError("nvmlDeviceGetComputeInstanceId", code)
	}
	if uuid, code := mig.GetUUID(); code == nvml.SUCCESS {
		in.device.Instance.UUID = tidy(uuid)
	}
	in.device.Instance.Profile = tidy(l.profile(mig))
	return in, nil
}

// arrange sorts the MIG devices of a GPU by their IDs and makes collector devices of them, with the GPU's common properties.
func arrange(parent collector.Device, found []instance) []instance {
	slices.SortFunc(found, func(a, b instance) int {
		return cmp.Or(cmp.Compare(a.gi, b.gi), cmp.Compare(a.ci, b.ci))
	})
	found = slices.CompactFunc(found, func(a, b instance) bool { return a.gi == b.gi && a.ci == b.ci })
	var out []instance
	for len(found) > 0 {
		n := 1
		for n < len(found) && found[n].gi == found[0].gi {
			n++
		}
		whole := found[0]
		whole.device = collector.InstanceOf(parent, whole.gi, whole.device.Instance.Profile)
		whole.device.Instance.UUID = found[0].device.Instance.UUID
		if n == 1 {
			out, found = append(out, whole), found[1:]
			continue
		}
		whole.ci, whole.device.Instance.UUID = -1, ""
		out = append(out, whole)
		for _, part := range found[:n] {
			uuid := part.device.Instance.UUID
			part.device = collector.ComputeInstanceOf(whole.device, part.ci)
			part.device.Instance.UUID = uuid
			out = append(out, part)
		}
		found = found[n:]
	}
	return out
}

// profileName matches the end of a MIG device's name, such as "MIG 1g.10gb+me" or "MIG 1c.3g.20gb". The part before the
// "g" number belongs to the compute instance.
var profileName = regexp.MustCompile(`\bMIG (?:\d+c\.)?(\d+g\.\d+gb(?:[+-][\w.+-]*)?)$`)

// profile returns the name of a MIG device's GPU instance profile, as NVIDIA's tools and Kubernetes resources write it.
// It is in the device's name, which any user may read. DCGM computes it from slices and memory instead, which loses
// profile extensions ("+me").
func (l *library) profile(mig nvml.Device) string {
	if !l.has("nvmlDeviceGetName") {
		return ""
	}
	name, code := mig.GetName()
	if m := profileName.FindStringSubmatch(name); code == nvml.SUCCESS && m != nil {
		return m[1]
	}
	return ""
}

// layout returns the MIG mode and the MIG devices' UUIDs by index, which change with the MIG layout. It is "" if one of
// them cannot be read. Handles and IDs are reused for other instances; UUIDs are not.
func (l *library) layout(gpu nvml.Device) string {
	mode, _, code := gpu.GetMigMode()
	switch {
	case code == nvml.ERROR_NOT_SUPPORTED:
		return "no MIG"
	case code != nvml.SUCCESS:
		return ""
	}
	layout := fmt.Sprint("mode ", mode)
	if mode == nvml.DEVICE_MIG_DISABLE {
		return layout
	}
	most, code := gpu.GetMaxMigDeviceCount()
	if code != nvml.SUCCESS {
		return ""
	}
	for i := range min(most, maxInstances) {
		mig, code := gpu.GetMigDeviceHandleByIndex(i)
		if code == nvml.ERROR_NOT_FOUND || code == nvml.ERROR_INVALID_ARGUMENT {
			continue
		}
		if code != nvml.SUCCESS {
			return ""
		}
		uuid, code := mig.GetUUID()
		if code != nvml.SUCCESS {
			return ""
		}
		layout += fmt.Sprintf(", %d %s", i, uuid)
	}
	return layout
}

// migChanged reports whether a GPU's MIG layout differs from the one at discovery. Errors alone do not show that, because
// the handle of a destroyed MIG device may serve the next one.
func (l *library) migChanged(g *gpu) bool {
	if !g.migCapable {
		return false
	}
	now := l.layout(g.handle)
	return now != "" && now != g.layout
}

// watchEvery is how often a GPU is checked for other instances than at Open. Drivers with MIG events report a new
// layout at once.
const watchEvery = 5 * time.Second

// migPart has no columns. It requests a new Open when the GPU's instances have changed, before other parts read
// instances that no longer exist.
type migPart struct {
	columnList
	changed func() bool
	now     func() time.Time
	asked   time.Time
	cost    *collector.Meter
}

// newMIGPart returns nil for a GPU without MIG. It must be the first part of a source.
func newMIGPart(l *library, g *gpu, c *costs) part {
	if !g.migCapable {
		return nil
	}
	changed := func() bool { return l.migChanged(g) }
	return &migPart{changed: changed, now: time.Now, asked: time.Now(), cost: c.meter("nvmlDeviceGetMigDeviceHandleByIndex")}
}

func (p *migPart) sample([]float64, []bool) error {
	now := p.now()
	if now.Sub(p.asked) < watchEvery {
		return nil
	}
	p.asked = now
	start := p.cost.Begin()
	changed := p.changed()
	p.cost.Record(1, start)
	if changed {
		return collector.ErrColumnsChanged
	}
	return nil
}
