package podmeta

import (
	"context"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// mirrorOf is the annotation by which the kubelet marks the API's copy of a static
// pod. Its value is the uid that the kubelet gave the pod itself.
const mirrorOf = "kubernetes.io/config.mirror"

func (c *Client) podFeed() *feed {
	store := &podStore{keep: c.o.KeepLabel, pods: map[PodName]podEntry{}}
	f := newFeed(resource{group: "", name: "pods"}, c.o.PodHealth, c.o)
	f.store, f.example = store, &metav1.PartialObjectMetadata{}
	f.version = func(context.Context, *clients) (schema.GroupVersionResource, error) {
		return schema.GroupVersionResource{Version: "v1", Resource: "pods"}, nil
	}
	f.reader = func(cl *clients, r schema.GroupVersionResource) api { return podAPI(cl, r, c.o.Node) }
	store.publish = c.publish
	store.listed = f.listed
	return f
}

func podAPI(c *clients, r schema.GroupVersionResource, node string) api {
	pods, selector := c.pods.Resource(r), fields.OneTermEqualSelector("spec.nodeName", node).String()
	return api{
		list: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			return pods.List(ctx, o)
		},
		watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			return pods.Watch(ctx, o)
		},
	}
}

// podStore keeps the little that is wanted of each pod. Only the reflector calls it,
// one call at a time; size may be called by anyone.
type podStore struct {
	keep    func(label string) bool
	publish func(func(*Snapshot) bool)
	listed  func()
	pods    map[PodName]podEntry
	filled  bool // a list has come
	count   atomic.Int64
}

var _ store = (*podStore)(nil)

type podEntry struct {
	Pod
	own string // the kubelet's uid of a static pod
}

func (p podEntry) equal(q podEntry) bool {
	return p.UID == q.UID && p.own == q.own && maps.Equal(p.Labels, q.Labels)
}

// take is the transform: what it returns shares no memory with the object but texts.
func (s *podStore) take(object any) (PodName, podEntry, error) {
	m, ok := object.(*metav1.PartialObjectMetadata)
	if !ok || m.Name == "" || m.UID == "" {
		return PodName{}, podEntry{}, fmt.Errorf("read pod: %T without name or uid", object)
	}
	p := podEntry{Pod: Pod{UID: string(m.UID)}, own: m.Annotations[mirrorOf]}
	for name, value := range m.Labels {
		if s.keep == nil || !s.keep(name) {
			continue
		}
		if p.Labels == nil {
			p.Labels = make(map[string]string)
		}
		p.Labels[name] = value
	}
	return PodName{Namespace: m.Namespace, Name: m.Name}, p, nil
}

// Replace implements cache.ReflectorStore.
func (s *podStore) Replace(list []any, _ string) error {
	next := make(map[PodName]podEntry, len(list))
	for _, object := range list {
		name, p, err := s.take(object)
		if err != nil {
			return err
		}
		next[name] = p
	}
	changed := !s.filled || !maps.EqualFunc(s.pods, next, podEntry.equal)
	s.pods, s.filled = next, true
	s.tell(changed)
	s.listed()
	return nil
}

// Add implements cache.ReflectorStore.
func (s *podStore) Add(object any) error { return s.Update(object) }

// Update implements cache.ReflectorStore. Most events of a pod change its status only.
func (s *podStore) Update(object any) error {
	name, p, err := s.take(object)
	if err != nil {
		return err
	}
	before, known := s.pods[name]
	changed := !known || !before.equal(p)
	if changed {
		s.pods[name] = p
	}
	s.tell(changed)
	return nil
}

// Delete implements cache.ReflectorStore.
func (s *podStore) Delete(object any) error {
	name, p, err := s.take(object)
	if err != nil {
		return err
	}
	known := s.pods[name].UID == p.UID // else there already is another pod of that name
	if known {
		delete(s.pods, name)
	}
	s.tell(known)
	return nil
}

// Bookmark implements cache.ReflectorBookmarkStore: nothing has changed up to here.
func (s *podStore) Bookmark(string) error {
	s.tell(false)
	return nil
}

// Resync implements cache.ReflectorStore. It is never asked for.
func (s *podStore) Resync() error { return nil }

func (s *podStore) size() int { return int(s.count.Load()) }

// tell publishes the pods, or only that they still are what they were.
func (s *podStore) tell(changed bool) {
	s.count.Store(int64(len(s.pods)))
	now := time.Now()
	if !changed {
		s.publish(func(next *Snapshot) bool { next.PodsTime = now; return false })
		return
	}
	pods, byUID := make(map[PodName]Pod, len(s.pods)), make(map[string]PodName, len(s.pods))
	for name, p := range s.pods {
		pods[name] = p.Pod
		byUID[p.UID] = name
		if p.own != "" {
			byUID[p.own] = name
		}
	}
	s.publish(func(next *Snapshot) bool {
		next.Pods, next.ByUID, next.PodsTime = pods, byUID, now
		return true
	})
}
