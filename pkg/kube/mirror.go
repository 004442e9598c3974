package kube

import (
	"iter"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// mirror keeps the needed parts of this node's objects of one resource. It belongs to a feed's goroutine.
type mirror[V any] struct {
	s       *APIServer
	kind    kind[V]
	objects map[PodName]mirrored[V]
	size    int // sum of kind.size
	entries int // as published
}

// mirrored is the kept part of an object.
type mirrored[V any] struct {
	uid   types.UID
	value V
}

// kind decodes and publishes the objects of one resource.
type kind[V any] interface {
	// decode returns the kept part of an object; false: the object is not kept.
	decode(object runtime.Object) (V, bool, error)
	// size counts towards maxSize.
	size(V) int
	maxSize() int
	// store puts objects into next. It returns the number of entries, and whether more than times has changed.
	store(objects map[PodName]mirrored[V], next *Metadata) (entries int, changed bool)
}

func newMirror[V any](s *APIServer, k kind[V]) *mirror[V] {
	return &mirror[V]{s: s, kind: k, objects: map[PodName]mirrored[V]{}}
}

// count returns the number of entries.
func (m *mirror[V]) count() int { return m.entries }

// replace applies a whole list. After an error the former objects stay.
func (m *mirror[V]) replace(objects iter.Seq2[runtime.Object, error]) error {
	next := newMirror(m.s, m.kind)
	for object, err := range objects {
		if err != nil {
			return err
		}
		if err := next.put(object, false); err != nil {
			return err
		}
	}
	m.objects, m.size = next.objects, next.size
	m.confirm()
	return nil
}

// apply applies an event of one object.
func (m *mirror[V]) apply(object runtime.Object, deleted bool) error {
	err := m.put(object, deleted)
	if err == nil {
		m.confirm()
	}
	return err
}

// put adds, changes or removes an object. After an error the former object stays.
func (m *mirror[V]) put(object runtime.Object, remove bool) error {
	value, keep, err := m.kind.decode(object)
	if err != nil {
		return err
	}
	o, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	name := PodName{o.GetNamespace(), o.GetName()}
	before, known := m.objects[name]
	size := m.size
	if known {
		size -= m.kind.size(before.value)
	}
	switch {
	case remove && before.uid != o.GetUID():
		return nil // its successor with the same name is known already
	case remove || !keep:
		delete(m.objects, name)
	default:
		if size += m.kind.size(value); size > m.kind.maxSize() || !known && len(m.objects) == maxObjects {
			return errTooMany
		}
		m.objects[name] = mirrored[V]{o.GetUID(), value}
	}
	m.size = size
	return nil
}

// confirm publishes the objects as they are now.
func (m *mirror[V]) confirm() {
	m.s.publish(func(next *Metadata) (changed bool) {
		m.entries, changed = m.kind.store(m.objects, next)
		return changed
	})
}
