package kube

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Containers holds the containers that run on the node. It is immutable.
type Containers struct {
	Version uint64                      // grows when ByID changes
	Time    time.Time                   // of the newest answer; zero before the first
	ByID    map[string]RunningContainer // by id: 64 hexadecimal digits
}

// RunningContainer identifies a container in Kubernetes.
type RunningContainer struct {
	Pod    PodName
	PodUID string // as in the names of control groups: for a static pod, the hash in its annotation kubernetes.io/config.hash
	Name   string // in the pod's spec
}

// Runtime lists the containers of this node's container runtime (CRI v1: CRI-O, cri-dockerd, containerd since 1.6). The
// kubelet labels each container with its pod's name and UID, so this needs only the socket and no permissions in the
// cluster. It only calls ListContainers.
type Runtime struct {
	poller
	Health *Health

	onChange func()
	socket   socket
	period   time.Duration
	snapshot atomic.Pointer[Containers]
	conn     *conn // used by Run's goroutine only; nil: not connected
}

// NewRuntime returns a Runtime. Its snapshot is empty before Run. path names the runtime's socket, with or without
// "unix://". It calls onChange after each new Version; onChange must not block.
func NewRuntime(path string, onChange func(), log *zap.Logger) *Runtime {
	r := &Runtime{
		poller: newPoller(), onChange: onChange, period: 5 * time.Second,
		Health: NewHealth(MappingContainerRuntime, log, socketReasons()...),
		socket: socket{path: strings.TrimPrefix(path, "unix://"), what: "the container runtime", timeout: 5 * time.Second, maxBytes: 64 << 20, advice: map[string]string{
			ReasonAbsent:        "start the runtime, check --container-runtime-socket, and in a pod mount the socket's directory from the host",
			ReasonDenied:        "the socket belongs to root: run as root, and allow access in SELinux or AppArmor",
			ReasonNotASocket:    "it is not a socket, or one of another kind; a container runtime creates a directory if the source of a mount is missing",
			ReasonRefused:       "the runtime is down, or the mounted socket is an old one: mount its directory",
			ReasonNotGRPC:       "the server does not speak gRPC; Docker's own socket does not serve the CRI, cri-dockerd's does",
			ReasonTimeout:       "the runtime did not answer in time: it hangs",
			ReasonUnimplemented: "check that the socket belongs to a container runtime with CRI v1 (containerd 1.6 or later), and that containerd's disabled_plugins do not list \"cri\", as Docker's packages do",
			ReasonError:         "check --container-runtime-socket",
		}},
	}
	r.snapshot.Store(&Containers{})
	return r
}

// Snapshot returns the newest Containers, never nil. It does not wait.
func (r *Runtime) Snapshot() *Containers { return r.snapshot.Load() }

// Run polls until ctx ends, and returns nil. It may be called once.
func (r *Runtime) Run(ctx context.Context) error {
	defer r.hangUp()
	r.run(ctx, r.poll)
	return nil
}

// poll lists once. After a failure the next call makes a new connection.
func (r *Runtime) poll(ctx context.Context) time.Duration {
	limited, cancel := context.WithTimeout(ctx, r.socket.timeout)
	defer cancel()
	containers, f := r.list(limited)
	if f != nil {
		r.hangUp()
		if !errors.Is(ctx.Err(), context.Canceled) { // otherwise Run is ending
			r.Health.Failed(f.reason, f.err)
		}
		return r.period
	}
	next := &Containers{Version: r.Snapshot().Version, Time: time.Now(), ByID: containers}
	changed := next.Version == 0 || !maps.Equal(r.Snapshot().ByID, containers)
	if changed {
		next.Version++
	}
	r.snapshot.Store(next)
	r.Health.Succeeded(len(containers))
	if changed {
		r.onChange()
	}
	return r.period
}

// list returns the running containers.
func (r *Runtime) list(ctx context.Context) (map[string]RunningContainer, *failure) {
	if r.conn == nil {
		c, f := r.socket.dial(ctx)
		if f != nil {
			return nil, f
		}
		r.conn = c
	}
	running := &v1.ContainerFilter{State: &v1.ContainerStateValue{State: v1.ContainerState_CONTAINER_RUNNING}}
	list, err := v1.NewRuntimeServiceClient(r.conn).ListContainers(ctx, &v1.ListContainersRequest{Filter: running})
	if f := r.conn.failure(err); f != nil {
		return nil, f
	}
	return containersOf(list.GetContainers()), nil
}

func (r *Runtime) hangUp() {
	if r.conn != nil {
		r.conn.close()
		r.conn = nil
	}
}

// Labels that the kubelet sets on containers (k8s.io/kubelet/pkg/types/labels.go).
const (
	labelPodUID    = "io.kubernetes.pod.uid"
	labelNamespace = "io.kubernetes.pod.namespace"
	labelPod       = "io.kubernetes.pod.name"
	labelContainer = "io.kubernetes.container.name"
)

// containersOf decodes an answer. It skips containers that the kubelet did not create.
func containersOf(list []*v1.Container) map[string]RunningContainer {
	out := make(map[string]RunningContainer, len(list))
	for _, c := range list {
		labels := c.GetLabels()
		known := RunningContainer{PodName{labels[labelNamespace], labels[labelPod]}, labels[labelPodUID], labels[labelContainer]}
		if c.GetState() != v1.ContainerState_CONTAINER_RUNNING || c.GetId() == "" || known.Pod.Name == "" || known.Pod.Namespace == "" {
			continue
		}
		if known.Name == "" {
			known.Name = c.GetMetadata().GetName()
		}
		out[c.GetId()] = known
	}
	return out
}
