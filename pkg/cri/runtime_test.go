package cri

import (
	"context"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"warpgauge/pkg/mapping"
)

// runtime is a container runtime on a socket, by the generated API.
type runtime struct {
	v1.UnimplementedRuntimeServiceServer
	t      testing.TB
	socket string
	server *grpc.Server
	served sync.WaitGroup

	mu         sync.Mutex
	containers []*v1.Container
	err        error
	hang       chan struct{} // a call waits for its end, or for this
	calls      int
	conns      int
}

// newSocket returns a path for a socket, which may have 107 bytes.
func newSocket(t testing.TB) string { return filepath.Join(t.TempDir(), "s") }

func startRuntime(t testing.TB, socket string, containers ...*v1.Container) *runtime {
	t.Helper()
	r := &runtime{t: t, socket: socket, containers: containers}
	r.start(func(s *grpc.Server) { v1.RegisterRuntimeServiceServer(s, r) })
	return r
}

func (r *runtime) start(register func(*grpc.Server)) {
	r.t.Helper()
	l, err := net.Listen("unix", r.socket)
	if err != nil {
		r.t.Fatal(err)
	}
	server := grpc.NewServer()
	register(server)
	r.server = server
	r.served.Go(func() { _ = server.Serve(counted{l, r}) })
	r.t.Cleanup(r.stop)
}

func (r *runtime) stop() {
	r.server.Stop()
	r.served.Wait()
}

// counted counts the connections that a runtime gets.
type counted struct {
	net.Listener
	r *runtime
}

func (c counted) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.r.mu.Lock()
		c.r.conns++
		c.r.mu.Unlock()
	}
	return conn, err
}

// ListContainers implements v1.RuntimeServiceServer. As containerd does, it
// answers with the states that were asked for.
func (r *runtime) ListContainers(ctx context.Context, q *v1.ListContainersRequest) (*v1.ListContainersResponse, error) {
	r.mu.Lock()
	r.calls++
	hang, err := r.hang, r.err
	var out []*v1.Container
	for _, c := range r.containers {
		if q.GetFilter().GetState() == nil || q.Filter.State.State == c.State {
			out = append(out, c)
		}
	}
	r.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return &v1.ListContainersResponse{Containers: out}, err
}

func (r *runtime) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

func (r *runtime) counts() (calls, conns int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls, r.conns
}

// container is one as the kubelet makes it.
func container(id, uid, namespace, pod, name string) *v1.Container {
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

// run runs a client until the test ends. changes counts calls of OnChange.
func run(t testing.TB, o Options) (c *Client, health *mapping.Health, changes chan struct{}) {
	t.Helper()
	changes = make(chan struct{}, 100)
	o.Health = mapping.New(mapping.ContainerRuntime, nil, Reasons()...)
	o.OnChange = func() { changes <- struct{}{} }
	c = New(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return c, o.Health, changes
}
