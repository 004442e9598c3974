// Package kubetest is a kubelet for tests: the real pod-resources API on a Unix socket, controlled by the test.
//
//	kubelet := kubetest.Start(t)
//	kubelet.Set(kubetest.Pod("ml", "train-0",
//		kubetest.Container("main", kubetest.Devices("nvidia.com/gpu", "GPU-1"))))
//	client := kube.NewKubelet(kube.KubeletOptions{Socket: kubelet.Socket()})
//
// It listens and restarts like the kubelet of Kubernetes 1.36. Its methods may be called concurrently.
package kubetest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"

	"google.golang.org/grpc"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Server is a fake kubelet.
type Server struct {
	v1.UnimplementedPodResourcesListerServer
	tb     testing.TB
	socket string

	mu        sync.Mutex
	pods      []*v1.PodResources
	behaviour Behaviour // nil: the API's answer
	calls     int
	running   *instance // nil while the kubelet is down
}

// instance is the kubelet between a start and its end.
type instance struct {
	server *grpc.Server
	served chan struct{} // closed when Serve has returned
}

// Start returns a kubelet without pods that serves on a socket in a temporary directory. It ends with the test.
func Start(tb testing.TB) *Server {
	tb.Helper()
	s := At(tb, SocketPath(tb))
	s.Serve()
	return s
}

// At returns a kubelet that does not run yet, for the socket at path. Its directory need not exist.
func At(tb testing.TB, path string) *Server {
	s := &Server{tb: tb, socket: path}
	tb.Cleanup(s.Kill)
	return s
}

// SocketPath returns a path for a socket in a temporary directory of the test.
func SocketPath(tb testing.TB) string {
	return filepath.Join(testkit.ShortDir(tb), "pod-resources", "kubelet.sock")
}

// Socket returns the path of the socket.
func (s *Server) Socket() string { return s.socket }

// Set sets the pods, with or without devices.
func (s *Server) Set(pods ...*v1.PodResources) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pods = slices.Clone(pods)
}

// On sets the behaviour of calls; nil restores the API's answer.
func (s *Server) On(b Behaviour) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.behaviour = b
}

// Calls returns the number of calls.
func (s *Server) Calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// Await waits for n more calls.
func (s *Server) Await(n int) {
	s.tb.Helper()
	want := s.Calls() + n
	eventually.True(s.tb, fmt.Sprint(n, " calls"), func() bool { return s.Calls() >= want })
}

// Serve starts the kubelet: it creates the socket's directory, removes a file at the path and creates the new socket
// under another name first.
func (s *Server) Serve() {
	s.tb.Helper()
	l, err := listen(s.socket)
	if err != nil {
		s.tb.Fatal(err)
	}
	in := &instance{served: make(chan struct{})}
	in.server = grpc.NewServer(grpc.UnaryInterceptor(s.intercept))
	v1.RegisterPodResourcesListerServer(in.server, s)
	s.mu.Lock()
	s.running = in
	s.mu.Unlock()
	go func() {
		defer close(in.served)
		if err := in.server.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			s.tb.Errorf("serve %q: %v", s.socket, err)
		}
	}()
}

// Kill ends the kubelet as SIGKILL does: connections close, the socket file stays.
// It does nothing while the kubelet is down.
func (s *Server) Kill() {
	s.mu.Lock()
	in := s.running
	s.running = nil
	s.mu.Unlock()
	if in != nil {
		in.server.Stop()
		<-in.served
	}
}

// Restart kills the kubelet and serves again with pods; without pods, as a kubelet that has not found its pods yet.
func (s *Server) Restart(pods ...*v1.PodResources) {
	s.tb.Helper()
	s.Kill()
	s.Set(pods...)
	s.Serve()
}

// Remove removes the socket's file.
func (s *Server) Remove() {
	s.tb.Helper()
	if err := os.Remove(s.socket); err != nil {
		s.tb.Error(err)
	}
}

// listen creates the socket as the kubelet does.
func listen(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return nil, err
	}
	temporary := filepath.Join(filepath.Dir(path), strconv.Itoa(os.Getpid()))
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", temporary)
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // a killed kubelet leaves it
	return l, os.Rename(temporary, path)
}

// intercept counts a call and applies the Behaviour.
func (s *Server) intercept(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	s.mu.Lock()
	s.calls++
	behave := s.behaviour
	s.mu.Unlock()
	if behave != nil {
		return behave(ctx)
	}
	return handler(ctx, req)
}

// List implements the API.
func (s *Server) List(context.Context, *v1.ListPodResourcesRequest) (*v1.ListPodResourcesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &v1.ListPodResourcesResponse{PodResources: s.pods}, nil
}
