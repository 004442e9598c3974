package kube

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// PodMeta is the kept part of a pod's metadata.
type PodMeta struct {
	UID    string            // the API's
	Labels map[string]string // the labels that APIOptions.KeepLabel keeps; may be nil
}

// mirrorOf is the annotation with which the kubelet marks the API's copy of a static pod. Its value is the kubelet's
// UID of the pod.
const mirrorOf = "kubernetes.io/config.mirror"

// podList is the list of this node's pods.
type podList struct {
	s      *APIServer
	pods   map[PodName]podEntry
	text   int  // bytes of their labels
	filled bool // a list has been read
}

type podEntry struct {
	PodMeta
	own string // the kubelet's uid of a static pod
}

// size returns the size of the labels in bytes.
func (p podEntry) size() (n int) {
	for name, value := range p.Labels {
		n += len(name) + len(value)
	}
	return n
}

func (p podEntry) equal(q podEntry) bool {
	return p.UID == q.UID && p.own == q.own && maps.Equal(p.Labels, q.Labels)
}

var _ list = (*podList)(nil)

func newPodList(s *APIServer) *podList { return &podList{s: s, pods: map[PodName]podEntry{}} }

func (l *podList) resource() resource { return resource{group: "", name: "pods"} }
func (l *podList) node() string       { return l.s.o.Node }
func (l *podList) size() int          { return len(l.pods) }

func (l *podList) version(context.Context, *clients, bool) (schema.GroupVersionResource, error) {
	return schema.GroupVersionResource{Version: "v1", Resource: "pods"}, nil
}

func (l *podList) api(c *clients, r schema.GroupVersionResource) api {
	pods := c.pods.Resource(r)
	return api{
		list:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return pods.List(ctx, o) },
		watch: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return pods.Watch(ctx, o) },
	}
}

// decodePod returns the kept part of a pod.
func (l *podList) decodePod(object runtime.Object) (PodName, podEntry, error) {
	m, ok := object.(*metav1.PartialObjectMetadata)
	if !ok || m.Name == "" || m.UID == "" {
		return PodName{}, podEntry{}, fmt.Errorf("read pod: %T without name or uid", object)
	}
	p := podEntry{PodMeta: PodMeta{UID: string(m.UID)}, own: m.Annotations[mirrorOf]}
	for name, value := range m.Labels {
		if l.s.o.KeepLabel == nil || !l.s.o.KeepLabel(name) {
			continue
		}
		if p.Labels == nil {
			p.Labels = map[string]string{}
		}
		p.Labels[name] = value
	}
	return PodName{Namespace: m.Namespace, Name: m.Name}, p, nil
}

func (l *podList) replace(objects iter.Seq2[runtime.Object, error]) error {
	next, text := map[PodName]podEntry{}, 0
	for object, err := range objects {
		if err != nil {
			return err
		}
		name, p, err := l.decodePod(object)
		if err != nil {
			return err
		}
		if text += p.size(); text > maxLabelText {
			return errTooMany
		}
		next[name] = p
	}
	changed := !l.filled || !maps.EqualFunc(l.pods, next, podEntry.equal)
	l.pods, l.text, l.filled = next, text, true
	l.publish(changed)
	return nil
}

// apply applies an event of one pod. Most events only change the status.
func (l *podList) apply(object runtime.Object, deleted bool) error {
	name, p, err := l.decodePod(object)
	if err != nil {
		return err
	}
	before, known := l.pods[name]
	changed := !known || !before.equal(p)
	switch {
	case deleted:
		if changed = known && before.UID == p.UID; changed { // otherwise another pod of that name already exists
			delete(l.pods, name)
			l.text -= before.size()
		}
	case changed:
		text := l.text + p.size() - before.size()
		if text > maxLabelText || !known && len(l.pods) == maxObjects {
			return errTooMany
		}
		l.pods[name], l.text = p, text
	}
	l.publish(changed)
	return nil
}

func (l *podList) confirm() { l.publish(false) }

// publish publishes the pods, or only that they are unchanged.
func (l *podList) publish(changed bool) {
	now := time.Now()
	if !changed {
		l.s.publish(func(next *Metadata) bool { next.PodsTime = now; return false })
		return
	}
	pods, byUID := make(map[PodName]PodMeta, len(l.pods)), make(map[string]PodName, len(l.pods))
	for name, p := range l.pods {
		pods[name], byUID[p.UID] = p.PodMeta, name
		if p.own != "" {
			byUID[p.own] = name
		}
	}
	l.s.publish(func(next *Metadata) bool {
		next.Pods, next.ByUID, next.PodsTime = pods, byUID, now
		return true
	})
}
