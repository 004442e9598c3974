package kube

import (
	"errors"
	"maps"
	"time"
)

// mirror keeps the needed parts of this node's objects of one resource. It belongs to a feed's goroutine.
type mirror struct {
	kind    kind
	objects map[PodName]*apiObject
	size    int // sum of apiObject.size
}

// kind knows the objects of one resource.
type kind interface {
	// strip removes the unneeded members of an object and sets its size. It returns false if the object should not be kept.
	strip(*apiObject) (keep bool)
	// store puts objects into next. It returns the number of entries, and whether anything except timestamps changed.
	store(objects map[PodName]*apiObject, next *Metadata) (entries int, changed bool)
}

// Limits on the objects in memory, far more than a node can have.
const (
	maxObjects = 10_000
	maxSize    = 32 << 20 // bytes of labels of pods, names and attributes of devices
)

// put adds, changes or removes an object. After an error the previous object stays.
func (m *mirror) put(o *apiObject, remove bool) error {
	if o.Metadata.Name == "" {
		return errors.New("the answer has an object without a name")
	}
	name := PodName{o.Metadata.Namespace, o.Metadata.Name}
	keep, size := m.kind.strip(o), m.size
	before, known := m.objects[name]
	if known {
		size -= before.size
	}
	switch {
	case remove && (!known || before.Metadata.UID != o.Metadata.UID):
		return nil // its successor with the same name is already known
	case remove || !keep:
		delete(m.objects, name)
	case size+o.size > maxSize || !known && len(m.objects) == maxObjects:
		return errTooMany
	default:
		size += o.size
		m.objects[name] = o
	}
	m.size = size
	return nil
}

// PodMeta holds the kept metadata of a pod.
type PodMeta struct {
	UID    string            // the API's
	Labels map[string]string // the labels that APIOptions.KeepLabel keeps; may be nil
}

func (p PodMeta) equal(q PodMeta) bool { return p.UID == q.UID && maps.Equal(p.Labels, q.Labels) }

// mirrorOf is the annotation with which the kubelet marks the API's copy of a static pod. Its value is the kubelet's
// UID for the pod.
const mirrorOf = "kubernetes.io/config.mirror"

// pods implements kind for this node's pods.
type pods struct{ keepLabel func(name string) bool }

func (k pods) strip(o *apiObject) bool {
	m := &o.Metadata
	o.static, m.Annotations = m.Annotations[mirrorOf], nil
	if k.keepLabel == nil {
		m.Labels = nil
	}
	for name, value := range m.Labels {
		if k.keepLabel(name) {
			o.size += len(name) + len(value)
		} else {
			delete(m.Labels, name)
		}
	}
	return true
}

// store reports no change for most events, because they only change the status.
func (pods) store(objects map[PodName]*apiObject, next *Metadata) (entries int, changed bool) {
	byName, byUID := make(map[PodName]PodMeta, len(objects)), make(map[string]PodName, len(objects))
	for name, o := range objects {
		byName[name], byUID[o.Metadata.UID] = PodMeta{o.Metadata.UID, o.Metadata.Labels}, name
		if o.static != "" {
			byUID[o.static] = name
		}
	}
	changed = next.PodsTime.IsZero() || !maps.EqualFunc(next.Pods, byName, PodMeta.equal) || !maps.Equal(next.ByUID, byUID)
	if changed {
		next.Pods, next.ByUID = byName, byUID
	}
	next.PodsTime = time.Now()
	return len(byName), changed
}

// apiObject is the needed part of an object of any resource.
type apiObject struct {
	Metadata struct {
		Namespace, Name, UID, ResourceVersion string
		Labels, Annotations                   map[string]string
	}
	Spec   sliceSpec // of a ResourceSlice
	Status struct {  // of a ResourceClaim
		Allocation struct {
			Devices struct {
				Results []struct {
					DeviceName
					AdminAccess bool
				}
			}
		}
	}
	Data map[string]string // of a ConfigMap

	static string // the kubelet's UID of a static pod
	slice  slice  // read from Spec
	size   int    // counts towards maxSize
}
