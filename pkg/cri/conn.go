package cri

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// conn is one connection to a runtime, and never another: what grpc would do to
// get a new one, with back-offs, is the client's part.
type conn struct {
	socket string
	wire   *wire
	grpc   *grpc.ClientConn
	calls  v1.RuntimeServiceClient
}

var errUsed = errors.New("the connection has ended")

func dial(ctx context.Context, o Options) (*conn, *failure) {
	var d net.Dialer
	plain, err := d.DialContext(ctx, "unix", o.Socket)
	if err != nil {
		return nil, dialFailure(o.Socket, err)
	}
	w := &wire{Conn: plain}
	var used atomic.Bool
	once := func(context.Context, string) (net.Conn, error) {
		if used.Swap(true) {
			return nil, errUsed
		}
		return w, nil
	}
	g, err := grpc.NewClient("passthrough:///localhost", // the name is the authority, which servers check
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(once),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: time.Hour, MaxDelay: time.Hour}, MinConnectTimeout: o.Timeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(o.MaxMessage)),
		grpc.WithIdleTimeout(0),
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableHealthCheck(), grpc.WithDisableRetry())
	if err != nil {
		_ = w.Close() // nothing was sent
		return nil, fail(ReasonError, "connect to the container runtime at %q: %w", o.Socket, err)
	}
	return &conn{socket: o.Socket, wire: w, grpc: g, calls: v1.NewRuntimeServiceClient(g)}, nil
}

// list asks for the containers that run.
func (c *conn) list(ctx context.Context) (map[string]Container, *failure) {
	running := &v1.ContainerFilter{State: &v1.ContainerStateValue{State: v1.ContainerState_CONTAINER_RUNNING}}
	answer, err := c.calls.ListContainers(ctx, &v1.ListContainersRequest{Filter: running})
	if err != nil {
		return nil, c.failure(ctx, err)
	}
	return containersOf(answer.GetContainers()), nil
}

func (c *conn) failure(ctx context.Context, err error) *failure {
	if c.wire.foreign.Load() {
		return fail(ReasonNotGRPC, "ask the container runtime at %q: whoever listens does not speak gRPC "+
			"(Docker's own socket is none of the CRI; cri-dockerd's is)", c.socket)
	}
	if status.Code(err) == codes.Unimplemented {
		return c.unimplemented(ctx, err)
	}
	return callFailure(c.socket, err)
}

// unimplemented tells a runtime that is too old from a server that is none. The
// messages of v1alpha2 are those of v1 (k8s.io/cri-api had both up to 1.25).
func (c *conn) unimplemented(ctx context.Context, err error) *failure {
	var v v1.VersionResponse
	if c.grpc.Invoke(ctx, "/runtime.v1alpha2.RuntimeService/Version", &v1.VersionRequest{}, &v) == nil {
		return fail(ReasonOldAPI, "ask the container runtime at %q: %q %q speaks CRI v1alpha2 only (containerd has v1 since 1.6)",
			c.socket, clip(v.GetRuntimeName()), clip(v.GetRuntimeVersion()))
	}
	return fail(ReasonUnimplemented, "ask the container runtime at %q: %s (is it a container runtime's socket, and in containerd's configuration, "+
		"is \"cri\" among disabled_plugins, as in Docker's packages?)", c.socket, clip(status.Convert(err).Message()))
}

func (c *conn) close() {
	_ = c.grpc.Close() // there is nothing that could be lost
	_ = c.wire.Close() // where grpc never took it
}

// wire sees whether the other side speaks HTTP/2, whose fourth byte is the kind
// of the first frame, SETTINGS (RFC 9113, 3.4 and 4.1).
type wire struct {
	net.Conn
	read    int // bytes so far, up to four; of grpc's reader alone
	foreign atomic.Bool
}

// Read implements net.Conn.
func (w *wire) Read(p []byte) (int, error) {
	const place, settings = 3, 4
	n, err := w.Conn.Read(p)
	if i := place - w.read; i >= 0 && i < n && p[i] != settings {
		w.foreign.Store(true)
	}
	w.read = min(w.read+n, place+1)
	return n, err
}
