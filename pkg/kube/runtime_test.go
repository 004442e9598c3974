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

func TestContainersHaveANewVersionOnlyIfTheyDiffer(t *testing.T) {
	r := startRuntime(t, newSocket(t), criContainer(idA, "u", "ns", "pod", "main"))
	c, health, changes := runRuntime(t, "unix://"+r.socket, 5*time.Millisecond)
	<-changes
	first := c.Snapshot()
	if first.Version != 1 || first.Time.IsZero() || first.ByID[idA].Pod.Name != "pod" {
		t.Errorf("first snapshot: %+v", first)
	}
	eventually.True(t, "an equal answer confirms", func() bool { return c.Snapshot().Time.After(first.Time) })
	if s := c.Snapshot(); s.Version != 1 || len(changes) != 0 {
		t.Errorf("after equal answers: version %d, %d further changes", s.Version, len(changes))
	}
	r.set(func() { r.containers = append(r.containers, criContainer(idB, "u2", "ns", "pod2", "main")) })
	<-changes
	if s := c.Snapshot(); s.Version != 2 || len(s.ByID) != 2 {
		t.Errorf("after another container: %+v", s)
	}
	if len(first.ByID) != 1 {
		t.Errorf("the first snapshot was changed: %+v", first)
	}
	r.set(func() { r.containers = nil })
	<-changes
	if s := c.Snapshot(); s.Version != 3 || len(s.ByID) != 0 {
		t.Errorf("after all have ended: %+v", s)
	}
	if got := health.State().Failing; got != "" {
		t.Errorf("failing: %q", got)
	}
}

// TestTheLastAnswerStays while the runtime is away, and a new one is found again.
func TestTheLastAnswerStays(t *testing.T) {
	r := startRuntime(t, newSocket(t), criContainer(idA, "u", "ns", "pod", "main"))
	c, health, changes := runRuntime(t, r.socket, 5*time.Millisecond)
	<-changes
	r.stop() // removes its socket
	eventually.True(t, "absence is seen", func() bool { return health.State().Failing == ReasonAbsent })
	if s := c.Snapshot(); s.Version != 1 || s.ByID[idA].Pod.Name != "pod" {
		t.Errorf("meanwhile: %+v", s)
	}
	again := startRuntime(t, r.socket, criContainer(idA, "u", "ns", "pod", "main"), criContainer(idB, "u2", "ns", "pod2", "main"))
	<-changes
	if s := c.Snapshot(); s.Version != 2 || len(s.ByID) != 2 {
		t.Errorf("after its return: %+v", s)
	}
	again.set(func() { again.err = status.Error(codes.Unknown, "broken") })
	eventually.True(t, "an error is seen", func() bool { return health.State().Failing == ReasonError })
	if s := c.Snapshot(); s.Version != 2 || len(s.ByID) != 2 {
		t.Errorf("after an error: %+v", s)
	}
}

func TestPollSoon(t *testing.T) {
	r := startRuntime(t, newSocket(t))
	c, _, changes := runRuntime(t, r.socket, time.Hour)
	<-changes
	r.set(func() { r.containers = []*v1.Container{criContainer(idA, "u", "ns", "pod", "main")} })
	for range 1000 {
		c.PollSoon()
	}
	<-changes
	r.set(func() {
		if r.calls > 3 {
			t.Errorf("%d calls, want at most 3: requests that come together are one, with a second call", r.calls)
		}
	})
}

// TestFailuresHaveReasons, and say what to do. TestWhatIsNoKubelet has the reasons of sockets.
func TestFailuresHaveReasons(t *testing.T) {
	f := func(what, socket string, most int, reason, says string) {
		t.Helper()
		c := NewRuntime(socket, func() {}, zap.NewNop())
		c.socket.maxBytes = most
		defer c.hangUp()
		_, err := c.list(t.Context())
		if err == nil || err.reason != reason || !strings.Contains(err.err.Error(), says) || !strings.Contains(err.err.Error(), socket) {
			t.Errorf("%s: got %v, want reason %q and an error with %q", what, err, reason, says)
		}
	}
	const most = 64 << 20
	f("no socket", newSocket(t), most, ReasonAbsent, "--container-runtime-socket")

	docker := newSocket(t)
	answerAll(t, docker, func(c net.Conn) { _, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) })
	f("Docker's socket", docker, most, ReasonNotGRPC, "cri-dockerd")

	plain := &fakeRuntime{t: t, socket: newSocket(t)}
	plain.start(func(*grpc.Server) {})
	f("containerd without the CRI", plain.socket, most, ReasonUnimplemented, "disabled_plugins")

	old := &fakeRuntime{t: t, socket: newSocket(t)}
	old.start(registerOld)
	f("a runtime before v1", old.socket, most, ReasonOldAPI, `"cri-o" "1.19"`)

	denied := startRuntime(t, newSocket(t))
	denied.set(func() { denied.err = status.Error(codes.PermissionDenied, "no") })
	f("a runtime that refuses", denied.socket, most, ReasonDenied, "no")

	long := startRuntime(t, newSocket(t), criContainer(idA, "u", "ns", strings.Repeat("p", 2000), "main"))
	f("a long answer", long.socket, 1000, ReasonTooLarge, "")
}

// registerOld serves Version of v1alpha2, whose messages are those of v1.
func registerOld(s *grpc.Server) {
	version := func(_ any, _ context.Context, read func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		if err := read(&v1.VersionRequest{}); err != nil {
			return nil, err
		}
		return &v1.VersionResponse{RuntimeName: "cri-o", RuntimeVersion: "1.19", RuntimeApiVersion: "v1alpha2"}, nil
	}
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "runtime.v1alpha2.RuntimeService",
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "Version", Handler: version}},
	}, nil)
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
	calls      int
}

// newSocket returns a path for a socket, which may have 107 bytes.
func newSocket(t testing.TB) string { return filepath.Join(t.TempDir(), "s") }

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

// ListContainers implements v1.RuntimeServiceServer. As containerd does, it
// answers with the states that were asked for.
func (r *fakeRuntime) ListContainers(_ context.Context, q *v1.ListContainersRequest) (*v1.ListContainersResponse, error) {
	r.mu.Lock()
	r.calls++
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

// criContainer is one as the kubelet makes it.
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

// runRuntime runs a Runtime until the test ends. changes counts calls of OnChange.
func runRuntime(t testing.TB, socket string, period time.Duration, set ...func(*Runtime)) (c *Runtime, health *Health, changes chan struct{}) {
	t.Helper()
	changes = make(chan struct{}, 100)
	c = NewRuntime(socket, func() { changes <- struct{}{} }, zap.NewNop())
	c.period = period
	for _, f := range set {
		f(c)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return c, c.Health, changes
}
