package kube

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

const resourceGroup = "resource.k8s.io"

// resourceSlices is the kind of this node's ResourceSlices. The vendors' drivers publish no slices for several nodes,
// because a GPU is on one node.
type resourceSlices struct{}

// decode keeps no slices of other drivers.
func (resourceSlices) decode(object runtime.Object) (s slice, keep bool, err error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok || u.GetName() == "" {
		return s, false, fmt.Errorf("read resource slice: %T without name", object)
	}
	s, keep = readSlice(u.Object)
	return s, keep, nil
}

func (resourceSlices) size(s slice) int { return len(s.devices) }
func (resourceSlices) maxSize() int     { return maxObjects }

func (resourceSlices) store(objects map[PodName]mirrored[slice], next *Metadata) (entries int, changed bool) {
	devices := join(objects, next.Slices)
	changed = next.SlicesTime.IsZero() || !maps.Equal(next.Slices, devices)
	if changed {
		next.Slices = devices
	}
	next.SlicesTime = time.Now()
	return len(devices), changed
}

// versions chooses the version of a group, which an upgrade of the cluster changes.
type versions struct {
	picked  string
	refused []string // versions that the server announces but in which it does not have the resource
}

// pick chooses a version: Kubernetes serves v1 of resource.k8s.io from 1.34 on, and before v1beta2 and v1beta1 if they
// are enabled. absent: the last version did not have the resource. It reads the served versions each time.
func (v *versions) pick(ctx context.Context, c *clients, absent bool) (string, error) {
	known := []string{"v1", "v1beta2", "v1beta1"}
	if absent {
		v.refused = append(v.refused, v.picked)
	}
	served, err := c.versions(ctx, resourceGroup)
	switch {
	case apierrors.IsNotFound(err):
		served = nil
	case apierrors.IsForbidden(err): // a cluster may hide its discovery, so try all versions
		served = known
	case err != nil:
		return "", fmt.Errorf("read which versions of apiGroup %q are served: %w", resourceGroup, err)
	}
	for _, v.picked = range known {
		if slices.Contains(served, v.picked) && !slices.Contains(v.refused, v.picked) {
			return v.picked, nil
		}
	}
	v.refused = nil
	return "", errNotServed
}

// slice is the kept part of a ResourceSlice.
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

// maxWithdrawn bounds the remembered devices that no slice has any more: a driver that renames its devices at each
// start must not fill the memory.
const maxWithdrawn = 1024

// join makes devices out of slices. before is its last result.
//
// A driver changes a pool by replacing its slices one after the other by slices of a higher generation. When all slices
// of the highest generation exist, they alone count. While some are missing, devices that they lack are taken from
// lower generations.
//
// A device that has disappeared stays, because claims of running pods still name it: the kubelet deletes all slices of
// a node when it starts, and those of a driver that has gone; NVIDIA's driver 25.12 omits unhealthy devices.
func join(all map[PodName]mirrored[slice], before map[DeviceName]SliceDevice) map[DeviceName]SliceDevice {
	devices := make(map[DeviceName]SliceDevice, len(before))
	pools := map[poolName][]slice{}
	for _, name := range slices.SortedFunc(maps.Keys(all), PodName.Compare) {
		s := all[name].value
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

// counting returns the slices of a pool that count, the most important last. They are sorted by name, so that the same
// one of two slices with one device always wins.
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
