package podmeta

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

const resourceGroup = "resource.k8s.io"

func (c *Client) sliceFeed() *feed {
	store := &sliceStore{slices: map[string]slice{}}
	versions := &sliceVersions{}
	f := newFeed(resource{group: resourceGroup, name: "resourceslices"}, c.o.SliceHealth, c.o)
	f.store, f.example, f.many = store, &unstructured.Unstructured{}, true
	f.reader = func(cl *clients, r schema.GroupVersionResource) api { return sliceAPI(cl, r, c.o.Node) }
	f.version = func(ctx context.Context, cl *clients) (schema.GroupVersionResource, error) {
		return versions.pick(ctx, cl, f.moved.Swap(false))
	}
	store.publish = c.publish
	store.listed = f.listed
	return f
}

// sliceAPI reads the slices that name this node. The drivers that we know publish no
// others: a GPU is on one node. Slices for all nodes, or for a selection, would need
// the node's labels and another watch in each exporter of the cluster.
func sliceAPI(c *clients, r schema.GroupVersionResource, node string) api {
	slices, selector := c.slices.Resource(r), fields.OneTermEqualSelector("spec.nodeName", node).String()
	return api{
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			return slices.List(ctx, o)
		},
		watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			return slices.Watch(ctx, o)
		},
	}
}

// sliceVersions picks the version of the API to read: Kubernetes serves v1 from
// 1.34 on, v1beta2 and v1beta1 before, where they are switched on.
type sliceVersions struct {
	picked  string
	refused []string // said to be served, but the resource was not found in them
}

// pick asks which versions there are each time: an upgrade brings some and takes
// others. absent says that the resource was not found in the version picked last.
func (v *sliceVersions) pick(ctx context.Context, c *clients, absent bool) (schema.GroupVersionResource, error) {
	known := []string{"v1", "v1beta2", "v1beta1"}
	if absent {
		v.refused = append(v.refused, v.picked)
	}
	served, err := c.versions(ctx, resourceGroup)
	switch {
	case apierrors.IsNotFound(err):
		served = nil
	case apierrors.IsForbidden(err): // a cluster may hide its discovery: try them all
		served = known
	case err != nil:
		return schema.GroupVersionResource{}, fmt.Errorf("look which versions of apiGroup %q are served: %w", resourceGroup, err)
	}
	for _, version := range known {
		if slices.Contains(served, version) && !slices.Contains(v.refused, version) {
			v.picked = version
			return schema.GroupVersionResource{Group: resourceGroup, Version: version, Resource: "resourceslices"}, nil
		}
	}
	v.refused = nil
	return schema.GroupVersionResource{}, errNotServed
}

// sliceStore keeps what is wanted of each slice. Only the reflector calls it, one
// call at a time; size may be called by anyone.
type sliceStore struct {
	publish func(func(*Snapshot) bool)
	listed  func()
	slices  map[string]slice // by name of the object
	filled  bool             // a list has come
	devices map[DeviceName]Device
	count   atomic.Int64
}

var _ store = (*sliceStore)(nil)

// take returns false for slices of drivers that are not known here.
func (s *sliceStore) take(object any) (string, slice, bool, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok || u.GetName() == "" {
		return "", slice{}, false, fmt.Errorf("read resource slice: %T without name", object)
	}
	converted, known := sliceOf(u.Object)
	return u.GetName(), converted, known, nil
}

// Replace implements cache.ReflectorStore.
func (s *sliceStore) Replace(list []any, _ string) error {
	next := make(map[string]slice, len(list))
	for _, object := range list {
		name, converted, known, err := s.take(object)
		if err != nil {
			return err
		}
		if known {
			next[name] = converted
		}
	}
	s.slices = next
	s.tell()
	s.listed()
	return nil
}

// Add implements cache.ReflectorStore.
func (s *sliceStore) Add(object any) error { return s.Update(object) }

// Update implements cache.ReflectorStore.
func (s *sliceStore) Update(object any) error {
	name, converted, known, err := s.take(object)
	if err != nil {
		return err
	}
	if known {
		s.slices[name] = converted
	} else {
		delete(s.slices, name)
	}
	s.tell()
	return nil
}

// Delete implements cache.ReflectorStore.
func (s *sliceStore) Delete(object any) error {
	name, _, _, err := s.take(object)
	if err != nil {
		return err
	}
	delete(s.slices, name)
	s.tell()
	return nil
}

// Bookmark implements cache.ReflectorBookmarkStore: nothing has changed up to here.
func (s *sliceStore) Bookmark(string) error {
	now := time.Now()
	s.publish(func(next *Snapshot) bool { next.SlicesTime = now; return false })
	return nil
}

// Resync implements cache.ReflectorStore. It is never asked for.
func (s *sliceStore) Resync() error { return nil }

func (s *sliceStore) size() int { return int(s.count.Load()) }

// tell publishes the devices, or only that they still are what they were.
func (s *sliceStore) tell() {
	devices := join(s.slices, s.devices)
	changed := !s.filled || !reflect.DeepEqual(s.devices, devices)
	if changed {
		s.devices, s.filled = devices, true
	}
	s.count.Store(int64(len(devices)))
	now := time.Now()
	s.publish(func(next *Snapshot) bool {
		if changed {
			next.Slices = devices
		}
		next.SlicesTime = now
		return changed
	})
}
