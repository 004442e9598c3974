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

// inAnyVersion calls f with each version of the API group until the server knows the resource, and returns that
// version. Kubernetes 1.34 and later serve v1 of resource.k8s.io; older releases serve v1beta2 and v1beta1 if they are
// enabled.
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
	pool       poolName
	generation int64
	count      int64 // number of slices in the pool at this generation
	devices    []namedDevice
}

type poolName struct{ driver, name string }

type namedDevice struct {
	name string
	SliceDevice
}

// maxWithdrawn bounds the remembered devices that no slice lists any more: a driver that renames its devices at each
// start must not fill the memory.
const maxWithdrawn = 1024

// join returns the devices of slices. before is its last result.
//
// A driver changes a pool by replacing its slices one after the other by slices of a higher generation. When all slices
// of the highest generation exist, they alone count. While some are missing, devices that they lack are taken from
// lower generations.
//
// A device that has disappeared stays, because claims of running pods still name it: the kubelet deletes all slices of
// a node when it starts and the slices of a removed driver; NVIDIA's driver 25.12 omits unhealthy devices.
func join(all map[PodName]*apiObject, before map[DeviceName]SliceDevice) map[DeviceName]SliceDevice {
	devices := make(map[DeviceName]SliceDevice, len(before))
	pools := map[poolName][]slice{}
	for _, name := range slices.SortedFunc(maps.Keys(all), PodName.Compare) {
		s := all[name].slice
		pools[s.pool] = append(pools[s.pool], s)
	}
	for pool, parts := range pools {
		for _, s := range counting(parts) {
			for _, d := range s.devices {
				devices[DeviceName{Driver: pool.driver, Pool: pool.name, Device: d.name}] = d.SliceDevice
			}
		}
	}
	var gone []DeviceName
	for name := range before {
		if _, there := devices[name]; !there {
			gone = append(gone, name)
		}
	}
	slices.SortFunc(gone, DeviceName.compare)
	for _, name := range gone[:min(len(gone), maxWithdrawn)] {
		devices[name] = before[name]
	}
	return devices
}

// counting returns the slices of a pool that count, the most important last. It sorts slices by name, so that the same
// slice always wins if two list one device.
func counting(parts []slice) []slice {
	slices.SortStableFunc(parts, func(a, b slice) int { return cmp.Compare(a.generation, b.generation) })
	highest, from := parts[len(parts)-1], len(parts)-1
	want := highest.count
	for from > 0 && parts[from-1].generation == highest.generation {
		from--
		want = max(want, parts[from].count)
	}
	if newest := parts[from:]; int64(len(newest)) >= want {
		return newest
	}
	return parts
}
