package kube

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

const resourceGroup = "resource.k8s.io"

// sliceList is the list of this node's ResourceSlices. The vendors' drivers publish no slices for several nodes,
// because a GPU is on one node.
type sliceList struct {
	s       *APIServer
	slices  map[string]slice // by name of the object
	filled  bool             // a list has been read
	devices map[DeviceName]SliceDevice
	picked  string   // chosen version of the API
	refused []string // versions that the server announces but in which it does not have the resource
}

var _ list = (*sliceList)(nil)

func newSliceList(s *APIServer) *sliceList { return &sliceList{s: s, slices: map[string]slice{}} }

func (l *sliceList) resource() resource {
	return resource{group: resourceGroup, name: "resourceslices"}
}
func (l *sliceList) node() string { return l.s.o.Node }
func (l *sliceList) size() int    { return len(l.devices) }

func (l *sliceList) api(c *clients, r schema.GroupVersionResource) api {
	slices := c.slices.Resource(r)
	return api{
		list:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return slices.List(ctx, o) },
		watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return slices.Watch(ctx, o) },
	}
}

// version chooses the API version: Kubernetes serves v1 from 1.34 on, and before v1beta2 and v1beta1 if they are
// enabled. It reads the served versions each time, because an upgrade changes them.
func (l *sliceList) version(ctx context.Context, c *clients, absent bool) (schema.GroupVersionResource, error) {
	known := []string{"v1", "v1beta2", "v1beta1"}
	if absent {
		l.refused = append(l.refused, l.picked)
	}
	served, err := c.versions(ctx, resourceGroup)
	switch {
	case apierrors.IsNotFound(err):
		served = nil
	case apierrors.IsForbidden(err): // a cluster may hide its discovery, so try all versions
		served = known
	case err != nil:
		return schema.GroupVersionResource{}, fmt.Errorf("read which versions of apiGroup %q are served: %w", resourceGroup, err)
	}
	for _, version := range known {
		if slices.Contains(served, version) && !slices.Contains(l.refused, version) {
			l.picked = version
			return schema.GroupVersionResource{Group: resourceGroup, Version: version, Resource: "resourceslices"}, nil
		}
	}
	l.refused = nil
	return schema.GroupVersionResource{}, errNotServed
}

// decodeSlice returns false for slices of other drivers.
func (l *sliceList) decodeSlice(object runtime.Object) (string, slice, bool, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok || u.GetName() == "" {
		return "", slice{}, false, fmt.Errorf("read resource slice: %T without name", object)
	}
	converted, counts := readSlice(u.Object)
	return u.GetName(), converted, counts, nil
}

func (l *sliceList) replace(objects iter.Seq2[runtime.Object, error]) error {
	next, devices := map[string]slice{}, 0
	for object, err := range objects {
		if err != nil {
			return err
		}
		name, converted, counts, err := l.decodeSlice(object)
		if err != nil {
			return err
		}
		if !counts {
			continue
		}
		if devices += len(converted.devices); devices > maxObjects {
			return errTooMany
		}
		next[name] = converted
	}
	l.slices = next
	l.publish()
	return nil
}

func (l *sliceList) apply(object runtime.Object, deleted bool) error {
	name, converted, counts, err := l.decodeSlice(object)
	if err != nil {
		return err
	}
	if counts && !deleted {
		if len(l.devices)+len(converted.devices) > maxObjects {
			return errTooMany
		}
		l.slices[name] = converted
	} else {
		delete(l.slices, name)
	}
	l.publish()
	return nil
}

func (l *sliceList) confirm() { l.publish() }

// publish publishes the devices, or only that they are unchanged.
func (l *sliceList) publish() {
	devices := join(l.slices, l.devices)
	changed := !l.filled || !maps.Equal(l.devices, devices)
	l.devices, l.filled = devices, true
	now := time.Now()
	l.s.publish(func(next *Metadata) bool {
		if changed {
			next.Slices = devices
		}
		next.SlicesTime = now
		return changed
	})
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
func join(all map[string]slice, before map[DeviceName]SliceDevice) map[DeviceName]SliceDevice {
	devices := make(map[DeviceName]SliceDevice, len(before))
	pools := map[poolName][]slice{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		pools[all[name].pool] = append(pools[all[name].pool], all[name])
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
