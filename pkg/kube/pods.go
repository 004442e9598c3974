package kube

import (
	"fmt"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// PodMeta is the kept part of a pod's metadata.
type PodMeta struct {
	UID    string            // the API's
	Labels map[string]string // the labels that APIOptions.KeepLabel keeps; may be nil
}

func (p PodMeta) equal(q PodMeta) bool { return p.UID == q.UID && maps.Equal(p.Labels, q.Labels) }

// mirrorOf is the annotation with which the kubelet marks the API's copy of a static pod. Its value is the kubelet's
// UID of the pod.
const mirrorOf = "kubernetes.io/config.mirror"

// pods is the kind of this node's pods.
type pods struct{ keepLabel func(name string) bool }

type podEntry struct {
	PodMeta
	own string // the kubelet's uid of a static pod
}

func (k pods) decode(object runtime.Object) (p podEntry, keep bool, err error) {
	m, ok := object.(*metav1.PartialObjectMetadata)
	if !ok || m.Name == "" || m.UID == "" {
		return p, false, fmt.Errorf("read pod: %T without name or uid", object)
	}
	p = podEntry{PodMeta: PodMeta{UID: string(m.UID)}, own: m.Annotations[mirrorOf]}
	if k.keepLabel != nil {
		p.Labels = maps.Clone(m.Labels)
		maps.DeleteFunc(p.Labels, func(name, _ string) bool { return !k.keepLabel(name) })
	}
	return p, true, nil
}

// size returns the size of the labels in bytes.
func (pods) size(p podEntry) (n int) {
	for name, value := range p.Labels {
		n += len(name) + len(value)
	}
	return n
}

func (pods) maxSize() int { return maxLabelText }

// store finds that most events only change the status.
func (pods) store(objects map[PodName]mirrored[podEntry], next *Metadata) (entries int, changed bool) {
	byName, byUID := make(map[PodName]PodMeta, len(objects)), make(map[string]PodName, len(objects))
	for name, o := range objects {
		p := o.value
		byName[name], byUID[p.UID] = p.PodMeta, name
		if p.own != "" {
			byUID[p.own] = name
		}
	}
	changed = next.PodsTime.IsZero() || !maps.EqualFunc(next.Pods, byName, PodMeta.equal) || !maps.Equal(next.ByUID, byUID)
	if changed {
		next.Pods, next.ByUID = byName, byUID
	}
	next.PodsTime = time.Now()
	return len(byName), changed
}
