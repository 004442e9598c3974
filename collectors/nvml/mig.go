//go:build linux && cgo

package nvml

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// mostInstances bounds what is asked for where the library does not say how many
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
	if call := l.layoutCall(g.raw); call != nil {
		g.layout = call() // before the instances: a change in between is seen later
	}
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
	raw, code := l.rawInstance(g.raw, index)
	if code != nvml.SUCCESS {
		return instance{}, false
	}
	handle, code := g.handle.GetMigDeviceHandleByIndex(index)
	if code != nvml.SUCCESS {
		return instance{}, false
	}
	in := instance{handle: handle, raw: raw}
	if in.gi, code = handle.GetGpuInstanceId(); code != nvml.SUCCESS {
		return instance{}, false
	}
	if in.ci, code = handle.GetComputeInstanceId(); code != nvml.SUCCESS {
		return instance{}, false
	}
	in.device.MIGUUID, _ = handle.GetUUID()
	in.device.InstanceProfile = l.profile(handle)
	return in, true
}

// arrange makes devices of the MIG devices that were found on a GPU, ordered by
// their ids. What they share with the GPU is copied from it.
func arrange(parent collector.Device, found []instance) []instance {
	slices.SortFunc(found, func(a, b instance) int {
		return cmp.Or(cmp.Compare(a.gi, b.gi), cmp.Compare(a.ci, b.ci))
	})
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
		whole.ci, whole.device.MIGUUID = -1, ""
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
	d.InstanceID = strconv.Itoa(in.gi)
	d.InstanceProfile, d.MIGUUID = in.device.InstanceProfile, in.device.MIGUUID
	d.ID = parent.ID + "/" + d.InstanceID
	return d
}

// computeDevice is the device of one of several compute instances of a GPU instance.
func computeDevice(parent collector.Device, in instance) collector.Device {
	d := parent
	d.Level, d.Parent = field.ComputeInstance, parent.ID
	d.ComputeID, d.MIGUUID = strconv.Itoa(in.ci), in.device.MIGUUID
	d.ID = parent.ID + "/" + d.ComputeID
	return d
}

// profileName is the end of a MIG device's name, such as "MIG 1g.10gb+me" and
// "MIG 1c.3g.20gb"; what is before the dot of "g" is the compute instance's.
var profileName = regexp.MustCompile(`\bMIG (?:\d+c\.)?(\d+g\.\d+gb(?:[+-][\w.+-]*)?)$`)

// profile is the name of the GPU instance profile of a MIG device, as NVIDIA's
// tools and Kubernetes resources write it. It is in the device's name, which any
// user may read. DCGM computes it from slices and memory instead, which tells
// profiles with extensions ("+me") and without from each other no more.
func (l *library) profile(handle nvml.Device) string {
	if l.has("nvmlDeviceGetName") {
		if name, code := handle.GetName(); code == nvml.SUCCESS {
			if m := profileName.FindStringSubmatch(name); m != nil {
				return m[1]
			}
		}
	}
	if l.has("nvmlDeviceGetAttributes_v2") {
		if a, code := handle.GetAttributes(); code == nvml.SUCCESS {
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
