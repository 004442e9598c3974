package owner

import (
	"warpgauge/pkg/cri"
	"warpgauge/pkg/podmeta"
)

// runtimeNames are what the container runtime calls pods and containers, the other
// way round than it tells.
type runtimeNames struct {
	of         *cri.Snapshot
	pods       map[string]podmeta.PodName          // by uid
	uids       map[podmeta.PodName]string          // "" where the runtime knows several pods of the name, one after the other
	containers map[podmeta.PodName]map[string]bool // names
}

// read turns a Snapshot round, unless that was done.
func (r *runtimeNames) read(s *cri.Snapshot) {
	if s == r.of && r.pods != nil {
		return
	}
	*r = runtimeNames{of: s, pods: map[string]podmeta.PodName{}, uids: map[podmeta.PodName]string{}, containers: map[podmeta.PodName]map[string]bool{}}
	if s == nil {
		return
	}
	for _, c := range s.Containers {
		name := podmeta.PodName{Namespace: c.Namespace, Name: c.Pod}
		r.pods[c.PodUID] = name
		if uid, known := r.uids[name]; known && uid != c.PodUID {
			r.uids[name] = ""
		} else {
			r.uids[name] = c.PodUID
		}
		if r.containers[name] == nil {
			r.containers[name] = map[string]bool{}
		}
		r.containers[name][c.Name] = true
	}
}

// container returns what the runtime says of a container.
func (r *runtimeNames) container(id string) (cri.Container, bool) {
	if r.of == nil || id == "" {
		return cri.Container{}, false
	}
	c, known := r.of.Containers[id]
	return c, known
}

// people looks up the pods that have devices. The API server is asked first: of
// a static pod the runtime knows another uid.
func (k *Keeper) people(uses map[string][]use, meta *podmeta.Snapshot, lost *losses) people {
	p := newPeople()
	for _, list := range uses {
		for i := range list {
			name := list[i].pod
			if _, done := p.uids[name]; done {
				continue
			}
			p.uids[name] = k.who.uids[name]
			if meta == nil {
				continue
			}
			pod, known := meta.Pods[name]
			if known && pod.UID != "" {
				p.uids[name] = pod.UID
			}
			if k.o.PodLabels {
				p.labels[name] = k.podLabels(pod.Labels, lost)
			}
		}
	}
	return p
}
