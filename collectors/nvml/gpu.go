//go:build linux && cgo

package nvml

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// gpu is one board as discovery found it.
type gpu struct {
	index  int              // NVML's index, which is DCGM's GPU id if both see all GPUs
	handle nvml.Device      // go-nvml's; nil if NVML did not answer
	of     device           // the same, as readings are asked of it
	device collector.Device // identity, Facts included

	migCapable bool // has a MIG mode, on or off
	mig        bool // it is on
	// instances are the MIG devices in the order of their ids. A GPU instance that
	// is split is followed by its compute instances.
	instances []instance
	layout    uint64 // how it is partitioned, see library.layout

	err    error       // why NVML did not answer; nothing above but index and device is set then
	silent func() bool // whether a call that did not return in time still has not; nil if there is none
}

// instance is a MIG device.
//
// A GPU instance with one compute instance, the usual case, is one device of
// Level Instance. If it has several, they share its memory: it is a device of
// Level Instance with the handle of the first, to which memory belongs, and each
// of them is one of Level ComputeInstance, to which only what is counted per
// compute instance belongs.
type instance struct {
	handle nvml.Device // the MIG device handle
	of     device
	gi     int
	ci     int // −1 on a GPU instance that is split
	device collector.Device
}

// errHangs says that a GPU has not answered in time. The call is still in progress.
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
		index:  index,
		device: collector.Device{Level: field.GPU, GPU: n, Node: "nvidia" + n},
	}
}

// count asks how many GPUs there are.
func (l *library) count() (int, nvml.Return) { return l.api.DeviceGetCount() }

// tidy makes a label's value of what a driver has written into a buffer.
func tidy(s string) string { return strings.ToValidUTF8(strings.TrimSpace(s), "\uFFFD") }

// identify asks NVML which GPU is at an index, and whether MIG is on.
func (l *library) identify(index int) *gpu {
	g := newGPU(index)
	board, code := l.api.DeviceGetHandleByIndex(index)
	if code != nvml.SUCCESS {
		g.err = gpuError("nvmlDeviceGetHandleByIndex_v2", code)
		return g
	}
	pci, code := board.GetPciInfo()
	if code == nvml.SUCCESS {
		g.device.PCIBusID = pciAddress{pci.Domain, pci.Bus, pci.Device}.String()
	}
	uuid, code := board.GetUUID()
	if code != nvml.SUCCESS && (lost(code) || g.device.PCIBusID == "") {
		g.err = gpuError("nvmlDeviceGetUUID", code)
		return g
	}
	if code == nvml.SUCCESS {
		g.device.UUID = tidy(uuid)
	}
	if g.device.UUID == "" {
		g.device.UUID = g.device.PCIBusID // boards older than UUIDs
	}
	g.device.ID = g.device.UUID
	g.handle, g.of = board, &handle{Device: board, lib: l}
	l.describe(g)
	l.findInstances(g)
	return g
}

// describe adds what a GPU can be without.
func (l *library) describe(g *gpu) {
	if l.has("nvmlDeviceGetName") {
		if name, code := g.handle.GetName(); code == nvml.SUCCESS {
			g.device.Model = tidy(name)
		}
	}
	// On WSL there is no device node and no number.
	if l.has("nvmlDeviceGetMinorNumber") {
		const most = 1 << 20 // MINORMASK of Linux
		if minor, code := g.handle.GetMinorNumber(); code == nvml.SUCCESS && minor >= 0 && minor < most {
			g.device.Node = "nvidia" + strconv.Itoa(minor)
		}
	}
}

// mostInstances bounds what is asked for if the library does not say how many
// MIG devices a GPU can have.
const mostInstances = 64

// findInstances sets the MIG mode and the instances of a GPU. What goes wrong with
// one instance costs that one.
func (l *library) findInstances(g *gpu) {
	if !l.hasAll("nvmlDeviceGetMigMode", "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetMigDeviceHandleByIndex",
		"nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId") {
		return
	}
	mode, _, code := g.handle.GetMigMode()
	if code != nvml.SUCCESS {
		return
	}
	g.migCapable, g.mig = true, mode == nvml.DEVICE_MIG_ENABLE
	g.layout = l.layout(g.handle) // before the instances: a change in between is seen later
	if !g.mig {
		return
	}
	count, code := g.handle.GetMaxMigDeviceCount()
	if code != nvml.SUCCESS {
		count = mostInstances
	}
	var found []instance
	for i := range min(count, mostInstances) {
		if in, ok := l.instanceAt(g, i); ok {
			found = append(found, in)
		}
	}
	g.instances = arrange(g.device, found)
}

// instanceAt asks for the MIG device at an index. There may be none: the indexes
// of those that there are have gaps.
func (l *library) instanceAt(g *gpu, index int) (instance, bool) {
	mig, code := g.handle.GetMigDeviceHandleByIndex(index)
	if code != nvml.SUCCESS {
		return instance{}, false
	}
	in := instance{handle: mig, of: &handle{Device: mig, lib: l}}
	if in.gi, code = mig.GetGpuInstanceId(); code != nvml.SUCCESS {
		return instance{}, false
	}
	if in.ci, code = mig.GetComputeInstanceId(); code != nvml.SUCCESS {
		return instance{}, false
	}
	if uuid, code := mig.GetUUID(); code == nvml.SUCCESS {
		in.device.Instance.UUID = tidy(uuid)
	}
	in.device.Instance.Profile = tidy(l.profile(mig))
	return in, true
}

// arrange makes devices of the MIG devices that were found on a GPU, ordered by
// their ids. What they share with the GPU is copied from it.
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
		whole.device = instanceDevice(parent, found[0])
		if n == 1 {
			out, found = append(out, whole), found[1:]
			continue
		}
		whole.ci, whole.device.Instance.UUID = -1, ""
		out = append(out, whole)
		for _, part := range found[:n] {
			part.device = computeDevice(whole.device, part)
			out = append(out, part)
		}
		found = found[n:]
	}
	return out
}

// instanceDevice is the device of a GPU instance.
func instanceDevice(parent collector.Device, in instance) collector.Device {
	d := parent
	d.Facts = nil
	d.Level, d.Parent = field.Instance, parent.ID
	d.Instance.ID = strconv.Itoa(in.gi)
	d.Instance.Profile, d.Instance.UUID = in.device.Instance.Profile, in.device.Instance.UUID
	d.ID = parent.ID + "/" + d.Instance.ID
	return d
}

// computeDevice is the device of one of several compute instances of a GPU instance.
func computeDevice(parent collector.Device, in instance) collector.Device {
	d := parent
	d.Level, d.Parent = field.ComputeInstance, parent.ID
	d.Instance.ComputeID, d.Instance.UUID = strconv.Itoa(in.ci), in.device.Instance.UUID
	d.ID = parent.ID + "/" + d.Instance.ComputeID
	return d
}

// profileName is the end of a MIG device's name, such as "MIG 1g.10gb+me" and
// "MIG 1c.3g.20gb"; what is before the dot of "g" is the compute instance's.
var profileName = regexp.MustCompile(`\bMIG (?:\d+c\.)?(\d+g\.\d+gb(?:[+-][\w.+-]*)?)$`)

// profile is the name of the GPU instance profile of a MIG device, as NVIDIA's
// tools and Kubernetes resources write it. It is in the device's name, which any
// user may read. DCGM computes it from slices and memory instead, and so loses the
// extensions of profiles ("+me").
func (l *library) profile(mig nvml.Device) string {
	if l.has("nvmlDeviceGetName") {
		if name, code := mig.GetName(); code == nvml.SUCCESS {
			if m := profileName.FindStringSubmatch(name); m != nil {
				return m[1]
			}
		}
	}
	if l.has("nvmlDeviceGetAttributes_v2") {
		if a, code := mig.GetAttributes(); code == nvml.SUCCESS {
			return computedProfile(a)
		}
	}
	return ""
}

// computedProfile is the name of a profile as DCGM makes it: memory in GiB,
// rounded up, because a part of each slice is not for users.
func computedProfile(a nvml.DeviceAttributes) string {
	const mib = 1024
	if a.GpuInstanceSliceCount == 0 || a.MemorySizeMB == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(a.GpuInstanceSliceCount), 10) + "g." + strconv.FormatUint((a.MemorySizeMB+mib-1)/mib, 10) + "gb"
}

// layout is a number that changes with the way in which a GPU is partitioned: a hash
// over MIG mode and the UUIDs of the MIG devices by index. It is 0 if one of them is not
// available. Handles and ids are used again for other instances, UUIDs are not.
func (l *library) layout(gpu nvml.Device) uint64 {
	h := fnv.New64a()
	mode, _, code := gpu.GetMigMode()
	switch {
	case code == nvml.ERROR_NOT_SUPPORTED:
		return h.Sum64()
	case code != nvml.SUCCESS:
		return 0
	}
	_ = binary.Write(h, binary.LittleEndian, int64(mode)) // a hash takes everything
	if mode == nvml.DEVICE_MIG_DISABLE {
		return h.Sum64()
	}
	most, code := gpu.GetMaxMigDeviceCount()
	if code != nvml.SUCCESS {
		return 0
	}
	for i := range min(most, mostInstances) {
		mig, code := gpu.GetMigDeviceHandleByIndex(i)
		if code == nvml.ERROR_NOT_FOUND || code == nvml.ERROR_INVALID_ARGUMENT {
			continue
		}
		if code != nvml.SUCCESS {
			return 0
		}
		uuid, code := mig.GetUUID()
		if code != nvml.SUCCESS {
			return 0
		}
		_, _ = fmt.Fprint(h, i, uuid)
	}
	return h.Sum64()
}

// migWatch sees that a GPU is partitioned in another way. The handle of a MIG device
// that was destroyed may serve the next one, so errors alone do not show it. nil, of a
// GPU that cannot be partitioned, sees nothing.
type migWatch struct {
	layout func() uint64
	was    uint64
}

func newMIGWatch(l *library, g *gpu) *migWatch {
	if !g.migCapable {
		return nil
	}
	return &migWatch{func() uint64 { return l.layout(g.handle) }, g.layout}
}

// changed reports whether the GPU is partitioned otherwise than at discovery.
func (w *migWatch) changed() bool {
	if w == nil {
		return false
	}
	now := w.layout()
	return now != 0 && now != w.was
}

// watchEvery is how often a GPU is asked whether it has other instances or vGPUs than at
// Open. Events say at once that it is partitioned in another way, if the driver has them.
const watchEvery = 5 * time.Second

// watchPart has no columns. It asks for a new Open when the instances or vGPUs of its GPU
// are others than they were, before other parts read of what is no more.
type watchPart struct {
	changed func() (bool, error)
	now     func() time.Time
	asked   time.Time
	cost    meter
}

var _ part = (*watchPart)(nil)

func newWatchPart(call string, changed func() (bool, error)) *watchPart {
	return &watchPart{changed: changed, now: time.Now, asked: time.Now(), cost: meter{call: call}}
}

// newMIGPart returns nil for a GPU that cannot be partitioned. It comes first of a
// source's parts.
func newMIGPart(l *library, g *gpu) *watchPart {
	w := newMIGWatch(l, g)
	if w == nil {
		return nil
	}
	return newWatchPart("nvmlDeviceGetMigDeviceHandleByIndex", func() (bool, error) { return w.changed(), nil })
}

// newVGPUPart returns nil for a GPU that cannot have vGPUs. A vGPU that replaced another
// one is found when the other is asked for its values.
func newVGPUPart(l *library, g *gpu) (*watchPart, error) {
	const call = "nvmlDeviceGetActiveVgpus"
	if !l.has(call) {
		return nil, nil //nolint:nilnil // no part, no error
	}
	was, code := countVGPUs(l, g.handle)
	switch {
	case isFatal(code):
		return nil, fatal(code)
	case code != nvml.SUCCESS:
		return nil, nil //nolint:nilnil,nilerr // no part, no error: the board has no vGPUs
	}
	return newWatchPart(call, func() (bool, error) {
		now, code := countVGPUs(l, g.handle)
		if isFatal(code) {
			return false, fatal(code)
		}
		return code == nvml.SUCCESS && now != was, nil
	}), nil
}

func (*watchPart) columns() []collector.Column { return nil }

func (p *watchPart) sample([]float64, []bool) error {
	now := p.now()
	if now.Sub(p.asked) < watchEvery {
		return nil
	}
	p.asked = now
	start := time.Now()
	changed, err := p.changed()
	p.cost.add(start)
	if changed {
		return collector.ErrColumnsChanged
	}
	return err
}

func (p *watchPart) calls() []collector.CallCost { return []collector.CallCost{p.cost.cost()} }

func (*watchPart) close() {}
