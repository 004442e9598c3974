// Package cri knows the containers of this node by id, with the names and uids
// of their pods, from the container runtime: the same socket that the kubelet
// uses (CRI v1: CRI-O, cri-dockerd, containerd since 1.6). The kubelet puts names
// and uids on each container as labels, so it takes no API server and no
// permissions in the cluster, only the socket. Nothing is changed there: the only
// calls are ListContainers and, where that is unknown, Version.
//
// A process is known by the id of its container (pkg/process); this package says
// which pod and which container that is.
//
// Client.Run is one goroutine beside those of grpc; the other methods may be
// called from any.
package cri

import (
	"maps"
	"time"

	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Snapshot is what runs on the node. It is immutable.
type Snapshot struct {
	Version    uint64               // grows when Containers changes
	Time       time.Time            // of the newest answer; zero before the first
	Containers map[string]Container // running, by id: 64 hexadecimal digits
}

// Container says what a container is to Kubernetes.
type Container struct {
	PodUID    string // as in the names of control groups: of a static pod, the hash in its annotation kubernetes.io/config.hash
	Namespace string
	Pod       string
	Name      string // in the pod's spec
}

// The labels that the kubelet puts on containers, whatever the runtime
// (k8s.io/kubelet/pkg/types/labels.go).
const (
	labelPodUID    = "io.kubernetes.pod.uid"
	labelNamespace = "io.kubernetes.pod.namespace"
	labelPod       = "io.kubernetes.pod.name"
	labelContainer = "io.kubernetes.container.name"
)

// containersOf reads an answer. Containers that are not the kubelet's are left out.
func containersOf(list []*v1.Container) map[string]Container {
	out := make(map[string]Container, len(list))
	for _, c := range list {
		if c.GetState() != v1.ContainerState_CONTAINER_RUNNING || c.GetId() == "" {
			continue
		}
		labels := c.GetLabels()
		known := Container{
			PodUID: labels[labelPodUID], Namespace: labels[labelNamespace],
			Pod: labels[labelPod], Name: labels[labelContainer],
		}
		if known.Pod == "" || known.Namespace == "" {
			continue
		}
		if known.Name == "" {
			known.Name = c.GetMetadata().GetName()
		}
		out[c.GetId()] = known
	}
	return out
}

// next is the Snapshot after an answer at a time.
func (s *Snapshot) next(containers map[string]Container, now time.Time) *Snapshot {
	if s.Version > 0 && maps.Equal(s.Containers, containers) {
		return &Snapshot{Version: s.Version, Time: now, Containers: s.Containers}
	}
	return &Snapshot{Version: s.Version + 1, Time: now, Containers: containers}
}
