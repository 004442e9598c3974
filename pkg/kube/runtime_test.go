package kube

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"warpgauge/internal/testkit/eventually"
)

const (
	idA = "d0b3604b67ac7930dd34ba3a796627e3e4717d12309e90a4afe3f38b6816ac98"
	idB = "a09bc17f5aa29b0dbdec9ede5f46cf1396d2405917ab02e6f1eb1019f388396e"
)

func TestContainersOfTheKubelet(t *testing.T) {
	exited := criContainer(idB, "u", "n", "p", "exited")
	exited.State = v1.ContainerState_CONTAINER_EXITED
	foreign := criContainer(idB, "", "", "", "")
	foreign.Labels = nil // made with crictl
	unnamed := criContainer(idB, "u-2", "ns", "pod-2", "")
	unnamed.Metadata.Name = "by-metadata"
	static := criContainer(strings.Repeat("c", 64), "8daa50c3a64c9ff60bb9eab7b44b56fd", "kube-system", "etcd-node", "etcd")
	got := containersOf([]*v1.Container{criContainer(idA, "u-1", "ns", "pod-1", "main"), exited, foreign, unnamed, static, {}, nil})
	want := map[string]RunningContainer{
		idA:       {PodName{"ns", "pod-1"}, "u-1", "main"},
		idB:       {PodName{"ns", "pod-2"}, "u-2", "by-metadata"},
		static.Id: {PodName{"kube-system", "etcd-node"}, "8daa50c3a64c9ff60bb9eab7b44b56fd", "etcd"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("containers (-want +got):\n%s", diff)
	}
}

// TestRuntime: the version grows only when containers change, the last answer stays while the runtime is down, and
// simultaneous requests make one call.
func TestRuntime(t *testing.T) {
	r := startRuntime(t, filepath.Join(t.TempDir(), "s"), criContainer(idA, "u", "ns", "pod", "main"))
	changes := make(chan struct{}, 100)
	c := NewRuntime("unix://"+r.socket, func() { changes <- struct{}{} }, zap.NewNop())
	c.period = 5 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	check := func(what string, version uint64, containers int) {
		t.Helper()
		if s := c.Snapshot(); s.Version != version || len(s.ByID) != containers || len(changes) != 0 {
			t.Errorf("%s: %+v, %d further changes", what, s, len(changes))
		}
	}
	failing := func(reason string) {
		t.Helper()
		eventually.True(t, "it fails for "+reason, func() bool { return c.Health.State().Failing == reason })
	}
	<-changes
	first := c.Snapshot()
	eventually.True(t, "an equal answer confirms", func() bool { return c.Snapshot().Time.After(first.Time) })
	check("after equal answers", 1, 1)
	r.set(func() { r.containers = append(r.containers, criContainer(idB, "u2", "ns", "pod2", "main")) })
	<-changes
	check("after another container", 2, 2)
	if len(first.ByID) != 1 {
		t.Errorf("the first snapshot was changed: %+v", first)
	}
	r.stop() // removes the runtime's socket
	failing(ReasonAbsent)
	check("while it is away", 2, 2)
	again := startRuntime(t, r.socket)
	<-changes
	check("after its return", 3, 0)
	again.set(func() { again.err = status.Error(codes.Unknown, "broken") })
	failing(ReasonError)
	check("after an error", 3, 0)
}

// TestFailuresHaveReasons checks reasons and remedies. TestReasonsOfErrors and TestWhatIsNoKubelet check the reasons of
// sockets.
func TestFailuresHaveReasons(t *testing.T) {
	f := func(reason, says string, prepare func(r *fakeRuntime)) {
		t.Helper()
		r := &fakeRuntime{t: t, socket: filepath.Join(t.TempDir(), "s")}
		prepare(r)
		c := NewRuntime(r.socket, func() {}, zap.NewNop())
		c.socket.maxBytes = 1000
		defer c.hangUp()
		_, err := c.list(t.Context())
		if err == nil || err.reason != reason || !strings.Contains(err.err.Error(), says) || !strings.Contains(err.err.Error(), r.socket) {
			t.Errorf("got %v, want reason %q and an error with %q", err, reason, says)
		}
	}
	f(ReasonAbsent, "--container-runtime-socket", func(*fakeRuntime) {})
	f(ReasonNotGRPC, "cri-dockerd", func(r *fakeRuntime) { // Docker's socket
		answerAll(t, r.socket, func(c net.Conn) { _, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) })
	})
	f(ReasonUnimplemented, "disabled_plugins", func(r *fakeRuntime) { r.start(func(*grpc.Server) {}) }) // containerd without the CRI
	f(ReasonTooLarge, "", func(r *fakeRuntime) {
		startRuntime(t, r.socket, criContainer(idA, "u", "ns", strings.Repeat("p", 2000), "main"))
	})
}

// fakeRuntime is a container runtime on a socket, by the generated API.
type fakeRuntime struct {
	v1.UnimplementedRuntimeServiceServer
	t      testing.TB
	socket string
	server *grpc.Server
	served sync.WaitGroup

	mu         sync.Mutex
	containers []*v1.Container
	err        error
}

func startRuntime(t testing.TB, socket string, containers ...*v1.Container) *fakeRuntime {
	t.Helper()
	r := &fakeRuntime{t: t, socket: socket, containers: containers}
	r.start(func(s *grpc.Server) { v1.RegisterRuntimeServiceServer(s, r) })
	return r
}

func (r *fakeRuntime) start(register func(*grpc.Server)) {
	r.t.Helper()
	l, err := net.Listen("unix", r.socket)
	if err != nil {
		r.t.Fatal(err)
	}
	server := grpc.NewServer()
	register(server)
	r.server = server
	r.served.Go(func() { _ = server.Serve(l) })
	r.t.Cleanup(r.stop)
}

func (r *fakeRuntime) stop() {
	r.server.Stop()
	r.served.Wait()
}

// ListContainers implements v1.RuntimeServiceServer. Like containerd, it filters by the requested states.
func (r *fakeRuntime) ListContainers(_ context.Context, q *v1.ListContainersRequest) (*v1.ListContainersResponse, error) {
	r.mu.Lock()
	err := r.err
	var out []*v1.Container
	for _, c := range r.containers {
		if q.GetFilter().GetState() == nil || q.Filter.State.State == c.State {
			out = append(out, c)
		}
	}
	r.mu.Unlock()
	return &v1.ListContainersResponse{Containers: out}, err
}

func (r *fakeRuntime) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

// criContainer returns a container as the kubelet creates it.
func criContainer(id, uid, namespace, pod, name string) *v1.Container {
	return &v1.Container{
		Id: id, PodSandboxId: "sandbox", State: v1.ContainerState_CONTAINER_RUNNING,
		Metadata: &v1.ContainerMetadata{Name: name},
		Labels: map[string]string{
			"io.kubernetes.pod.uid": uid, "io.kubernetes.pod.namespace": namespace,
			"io.kubernetes.pod.name": pod, "io.kubernetes.container.name": name,
		},
		Annotations: map[string]string{"io.kubernetes.container.restartCount": "0"},
	}
}
