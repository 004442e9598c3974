package kube

import (
	"cmp"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const resourceGroup = "resource.k8s.io"

// resourceSlices implements kind for this node's ResourceSlices. The vendors' drivers publish no slices for several
// nodes, because a GPU is on one node.
type resourceSlices struct{}

// strip drops slices of other drivers.
func (resourceSlices) strip(o *apiObject) (keep bool) {
	o.slice, keep = readSlice(&o.Spec)
	o.Spec = sliceSpec{}
	for _, d := range o.slice.devices {
		o.size += len(d.name) + len(d.UUID) + len(d.ParentUUID) + len(d.Profile) + len(d.PCIBusID) + 256 // in memory
	}
	return keep
}

func (resourceSlices) store(objects map[PodName]*apiObject, next *Metadata) (entries int, changed bool) {
	devices := join(objects, next.Slices)
	changed = next.SlicesTime.IsZero() || !maps.Equal(next.Slices, devices)
	if changed {
		next.Slices = devices
	}
	next.SlicesTime = time.Now()
	return len(devices), changed
}

// inAnyVersion calls f with each version of the API group until the server knows the resource, and returns that version.
// Kubernetes 1.34 and later serve v1 of resource.k8s.io; older releases serve v1beta2 and v1beta1 if they are enabled.
func (r resource) inAnyVersion(f func(version string) error) (string, error) {
	if r.group == "" {
		return "v1", f("v1")
	}
	for _, version := range []string{"v1", "v1beta2", "v1beta1"} {
		if err := f(version); !apierrors.IsNotFound(err) {
			return version, err
		}
	}
	return "", errNotServed
}

// slice holds the kept members of a ResourceSlice.
type slice struct {
	driver, pool string
	generation   int64
	devices      []namedDevice
}

type namedDevice struct {
	name string
	SliceDevice
}

// maxWithdrawn bounds the remembered devices that no slice lists any more: a driver that renames its devices at each
// start must not fill the memory.
const maxWithdrawn = 1024

// join returns the devices of slices. before is its last result.
//
// A driver changes a pool by replacing its slices one after the other by slices of a higher generation, which counts.
//
// A device that has disappeared stays, because claims of running pods still name it: the kubelet deletes all slices of
// a node when it starts and the slices of a removed driver; NVIDIA's driver 25.12 omits unhealthy devices.
func join(all map[PodName]*apiObject, before map[DeviceName]SliceDevice) map[DeviceName]SliceDevice {
	names := slices.SortedFunc(maps.Keys(all), func(a, b PodName) int {
		return cmp.Or(cmp.Compare(all[a].slice.generation, all[b].slice.generation), a.Compare(b)) // by name, so that the same slice always wins
	})
	devices := make(map[DeviceName]SliceDevice, len(before))
	for _, name := range names {
		s := all[name].slice
		for _, d := range s.devices {
			devices[DeviceName{Driver: s.driver, Pool: s.pool, Device: d.name}] = d.SliceDevice
		}
	}
	gone := slices.SortedFunc(maps.Keys(before), DeviceName.compare)
	gone = slices.DeleteFunc(gone, func(name DeviceName) bool { _, there := devices[name]; return there })
	for _, name := range gone[:min(len(gone), maxWithdrawn)] {
		devices[name] = before[name]
	}
	return devices
}
