package cri

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"warpgauge/pkg/eventually"
	"warpgauge/pkg/mapping"
)

const (
	idA = "d0b3604b67ac7930dd34ba3a796627e3e4717d12309e90a4afe3f38b6816ac98"
	idB = "a09bc17f5aa29b0dbdec9ede5f46cf1396d2405917ab02e6f1eb1019f388396e"
)

func TestContainersOfTheKubelet(t *testing.T) {
	exited := container(idB, "u", "n", "p", "exited")
	exited.State = v1.ContainerState_CONTAINER_EXITED
	foreign := container(idB, "", "", "", "")
	foreign.Labels = nil // made with crictl
	unnamed := container(idB, "u-2", "ns", "pod-2", "")
	unnamed.Metadata.Name = "by-metadata"
	static := container(strings.Repeat("c", 64), "8daa50c3a64c9ff60bb9eab7b44b56fd", "kube-system", "etcd-node", "etcd")
	got := containersOf([]*v1.Container{container(idA, "u-1", "ns", "pod-1", "main"), exited, foreign, unnamed, static, {}, nil})
	want := map[string]Container{
		idA:       {PodUID: "u-1", Namespace: "ns", Pod: "pod-1", Name: "main"},
		idB:       {PodUID: "u-2", Namespace: "ns", Pod: "pod-2", Name: "by-metadata"},
		static.Id: {PodUID: "8daa50c3a64c9ff60bb9eab7b44b56fd", Namespace: "kube-system", Pod: "etcd-node", Name: "etcd"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("containers (-want +got):\n%s", diff)
	}
}

func TestASnapshotIsNewOnlyWhereItDiffers(t *testing.T) {
	r := startRuntime(t, newSocket(t), container(idA, "u", "ns", "pod", "main"))
	c, health, changes := run(t, Options{Socket: "unix://" + r.socket, Interval: 5 * time.Millisecond})
	<-changes
	first := c.Snapshot()
	if first.Version != 1 || first.Time.IsZero() || first.Containers[idA].Pod != "pod" {
		t.Errorf("first snapshot: %+v", first)
	}
	eventually.True(t, "an equal answer confirms", func() bool { return c.Snapshot().Time.After(first.Time) })
	if s := c.Snapshot(); s.Version != 1 || len(changes) != 0 {
		t.Errorf("after equal answers: version %d, %d further changes", s.Version, len(changes))
	}
	r.set(func() { r.containers = append(r.containers, container(idB, "u2", "ns", "pod2", "main")) })
	<-changes
	if s := c.Snapshot(); s.Version != 2 || len(s.Containers) != 2 {
		t.Errorf("after another container: %+v", s)
	}
	if len(first.Containers) != 1 {
		t.Errorf("the first snapshot was changed: %+v", first)
	}
	r.set(func() { r.containers = nil })
	<-changes
	if s := c.Snapshot(); s.Version != 3 || len(s.Containers) != 0 {
		t.Errorf("after all have ended: %+v", s)
	}
	if _, conns := r.counts(); conns != 1 {
		t.Errorf("%d connections, want 1 that is kept", conns)
	}
	if got := health.Failing(); got != "" {
		t.Errorf("failing: %q", got)
	}
}

func TestAnEmptyNodeIsAnAnswer(t *testing.T) {
	r := startRuntime(t, newSocket(t))
	c, _, changes := run(t, Options{Socket: r.socket})
	<-changes
	if s := c.Snapshot(); s.Version != 1 || s.Time.IsZero() || s.Containers == nil {
		t.Errorf("%+v", s)
	}
}

// TestTheLastAnswerStays while the runtime is away, and a new one is found again.
func TestTheLastAnswerStays(t *testing.T) {
	r := startRuntime(t, newSocket(t), container(idA, "u", "ns", "pod", "main"))
	c, health, changes := run(t, Options{Socket: r.socket, Interval: 5 * time.Millisecond})
	<-changes
	r.stop() // removes its socket
	eventually.True(t, "absence is seen", func() bool { return health.Failing() == ReasonAbsent })
	if s := c.Snapshot(); s.Version != 1 || s.Containers[idA].Pod != "pod" {
		t.Errorf("meanwhile: %+v", s)
	}
	again := startRuntime(t, r.socket, container(idA, "u", "ns", "pod", "main"), container(idB, "u2", "ns", "pod2", "main"))
	<-changes
	if s := c.Snapshot(); s.Version != 2 || len(s.Containers) != 2 {
		t.Errorf("after its return: %+v", s)
	}
	again.set(func() { again.err = status.Error(codes.Unknown, "lost its mind") })
	eventually.True(t, "an error is seen", func() bool { return health.Failing() == ReasonError })
	if s := c.Snapshot(); s.Version != 2 || len(s.Containers) != 2 {
		t.Errorf("after an error: %+v", s)
	}
}

func TestSilenceHasADeadline(t *testing.T) {
	r := startRuntime(t, newSocket(t), container(idA, "u", "ns", "pod", "main"))
	release := make(chan struct{})
	r.set(func() { r.hang = release })
	c, health, changes := run(t, Options{Socket: r.socket, Interval: 5 * time.Millisecond, Timeout: 200 * time.Millisecond})
	eventually.True(t, "silence is seen", func() bool { return health.Failing() == ReasonTimeout })
	if s := c.Snapshot(); s.Version != 0 {
		t.Errorf("meanwhile: %+v", s)
	}
	r.set(func() { r.hang = nil })
	close(release)
	<-changes
	eventually.True(t, "the answer is seen", func() bool { return health.Failing() == "" })
}

func TestSuspect(t *testing.T) {
	r := startRuntime(t, newSocket(t))
	c, _, changes := run(t, Options{Socket: r.socket, Interval: time.Hour})
	<-changes
	r.set(func() { r.containers = []*v1.Container{container(idA, "u", "ns", "pod", "main")} })
	for range 1000 {
		c.Suspect()
	}
	<-changes
	if calls, _ := r.counts(); calls != 2 {
		t.Errorf("%d calls, want 2: wishes that come together are one", calls)
	}
}

// TestFailuresHaveReasons, and say what to do.
func TestFailuresHaveReasons(t *testing.T) {
	look := func(socket string, most int) *failure {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), eventually.Patience)
		defer cancel()
		c := New(Options{Socket: socket, MaxMessage: most})
		defer c.hangUp()
		_, err := c.ask(ctx)
		return err
	}
	f := func(what, socket, reason, says string) {
		t.Helper()
		err := look(socket, 0)
		if err == nil || err.reason != reason || !strings.Contains(err.err.Error(), says) || !strings.Contains(err.err.Error(), socket) {
			t.Errorf("%s: got %v, want reason %q and an error with %q", what, err, reason, says)
		}
	}
	absent := newSocket(t)
	f("no socket", absent, ReasonAbsent, "--container-runtime-socket")
	f("below a file", plainFile(t)+"/x", ReasonAbsent, "--container-runtime-socket")
	f("a plain file", plainFile(t), ReasonNotASocket, "no socket")
	f("a directory", t.TempDir(), ReasonNotASocket, "makes a directory")

	left := newSocket(t)
	leave(t, left)
	f("a socket that nobody listens on", left, ReasonRefused, "the runtime is down")

	packets := newSocket(t)
	if p, err := net.ListenPacket("unixgram", packets); err != nil {
		t.Fatal(err)
	} else {
		defer func() { _ = p.Close() }()
	}
	f("a socket of another kind", packets, ReasonNotASocket, "another kind")

	docker := newSocket(t)
	serveHTTP(t, docker)
	f("Docker's socket", docker, ReasonNotGRPC, "cri-dockerd")

	plain := &runtime{t: t, socket: newSocket(t)}
	plain.start(func(*grpc.Server) {})
	f("containerd without the CRI", plain.socket, ReasonUnimplemented, "disabled_plugins")

	old := &runtime{t: t, socket: newSocket(t)}
	old.start(registerOld)
	f("a runtime before v1", old.socket, ReasonOldAPI, `"cri-o" "1.19"`)

	denied := startRuntime(t, newSocket(t))
	denied.set(func() { denied.err = status.Error(codes.PermissionDenied, "no") })
	f("a runtime that refuses", denied.socket, ReasonDenied, "no")

	long := startRuntime(t, newSocket(t), container(idA, "u", "ns", strings.Repeat("p", 2000), "main"))
	if err := look(long.socket, 1000); err == nil || err.reason != ReasonTooLarge {
		t.Errorf("a long answer: %v, want reason %q", err, ReasonTooLarge)
	}
	if err := look(long.socket, 0); err != nil {
		t.Errorf("a long answer within bounds: %v", err.err)
	}
}

func TestNoPermission(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Log("root may use any socket: only the mapping of the error is tested")
		if err := dialFailure("/x", &net.OpError{Err: os.NewSyscallError("connect", os.ErrPermission)}); err.reason != ReasonDenied {
			t.Errorf("got %v", err)
		}
		return
	}
	r := startRuntime(t, newSocket(t))
	if err := os.Chmod(r.socket, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := dial(t.Context(), Options{Socket: r.socket}); err == nil || err.reason != ReasonDenied {
		t.Errorf("got %v", err)
	}
}

// TestTheEndIsNoFailure: a call that the end interrupts is not counted.
func TestTheEndIsNoFailure(t *testing.T) {
	r := startRuntime(t, newSocket(t))
	release := make(chan struct{})
	defer close(release)
	r.set(func() { r.hang = release })
	health := mapping.New(mapping.ContainerRuntime, nil, Reasons()...)
	c := New(Options{Socket: r.socket, Health: health})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	eventually.True(t, "a call hangs", func() bool { calls, _ := r.counts(); return calls > 0 })
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
	if health.Tried() {
		t.Errorf("failing: %q", health.Failing())
	}
}

func plainFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// leave leaves a socket behind as a runtime that was killed does.
func leave(t *testing.T, socket string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func serveHTTP(t *testing.T, socket string) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-done
	})
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
