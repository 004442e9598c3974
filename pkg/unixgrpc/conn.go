// Package unixgrpc connects to gRPC servers on Unix sockets of this machine: the
// kubelet's, a container runtime's. What it adds to grpc: a connection that is one
// connection and never another, and the truth about why there is none.
package unixgrpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
)

// Conn is one connection to a server on a Unix socket, and never another: when it
// ends, calls fail with codes.Unavailable. So whoever holds a Conn knows that it has
// been the same server all the time, and no back-off of grpc delays the next one,
// which is the caller's to make. Its methods may be called concurrently.
type Conn struct {
	*grpc.ClientConn
	wire *wire
}

// errOver says that a Conn has had its connection.
var errOver = errors.New("the connection has ended")

// Dial connects to the socket at path, waiting no longer than timeout; grpc begins
// to speak with the first call. An answer has at most so many bytes. Errors are
// those of the dialer: Why says what they mean.
func Dial(ctx context.Context, path string, timeout time.Duration, maxMessage int, more ...grpc.CallOption) (*Conn, error) {
	dialer := net.Dialer{Timeout: timeout}
	plain, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	w, err := newWire(plain.(*net.UnixConn))
	if err != nil {
		_ = plain.Close() // nothing was sent
		return nil, err
	}
	var taken atomic.Bool
	c, err := grpc.NewClient("passthrough:///localhost", // the name is the authority, which servers check
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			if taken.Swap(true) {
				return nil, errOver
			}
			return w, nil
		}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: time.Hour, MaxDelay: time.Hour}, MinConnectTimeout: timeout}),
		grpc.WithDefaultCallOptions(append([]grpc.CallOption{grpc.MaxCallRecvMsgSize(maxMessage)}, more...)...),
		grpc.WithIdleTimeout(0), // a connection that ends means a server that ends
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableHealthCheck(), grpc.WithDisableRetry())
	if err != nil {
		_ = w.Close() // nothing was sent
		return nil, fmt.Errorf("make a gRPC client: %w", err)
	}
	return &Conn{ClientConn: c, wire: w}, nil
}

// Foreign reports whether whoever listens has been heard to speak something else
// than gRPC: then that is why a call failed, whatever its error says.
func (c *Conn) Foreign() bool { return c.wire.foreign.Load() }

// Close ends the connection. Nothing can be lost.
func (c *Conn) Close() {
	_ = c.ClientConn.Close()
	_ = c.wire.Close() // where grpc never took it
}
