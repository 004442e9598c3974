package cri

import (
	"context"

	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"warpgauge/pkg/unixgrpc"
)

// conn is one connection to a runtime, and never another.
type conn struct {
	socket string
	grpc   *unixgrpc.Conn
	calls  v1.RuntimeServiceClient
}

func dial(ctx context.Context, o Options) (*conn, *failure) {
	g, err := unixgrpc.Dial(ctx, o.Socket, o.Timeout, o.MaxMessage)
	if err != nil {
		return nil, dialFailure(o.Socket, err)
	}
	return &conn{socket: o.Socket, grpc: g, calls: v1.NewRuntimeServiceClient(g)}, nil
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
	cause := c.grpc.WhyCall(err)
	if cause == unixgrpc.Unimplemented {
		if old := c.old(ctx); old != nil {
			return old
		}
	}
	return callFailure(c.socket, cause, err)
}

// old tells a runtime that is too old from a server that is none: nil. The messages
// of v1alpha2 are those of v1 (k8s.io/cri-api had both up to 1.25).
func (c *conn) old(ctx context.Context) *failure {
	var v v1.VersionResponse
	if c.grpc.Invoke(ctx, "/runtime.v1alpha2.RuntimeService/Version", &v1.VersionRequest{}, &v) != nil {
		return nil
	}
	return fail(ReasonOldAPI, "ask the container runtime at %q: %q %q speaks CRI v1alpha2 only (containerd has v1 since 1.6)",
		c.socket, unixgrpc.Clip(v.GetRuntimeName()), unixgrpc.Clip(v.GetRuntimeVersion()))
}

func (c *conn) close() { c.grpc.Close() }
