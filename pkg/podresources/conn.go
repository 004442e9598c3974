package podresources

import (
	"context"
	"errors"
	"hash/maphash"
	"io/fs"
	"net"
	"os"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// kubelet is one connection to the kubelet. Its calls are made from one goroutine.
type kubelet interface {
	list(ctx context.Context) (*answer, *failure)
	able(ctx context.Context) (*answer, *failure)
	stale() bool // another socket is at the path now
	close()
}

// conn is a kubelet on its socket. It is one connection and never another: where
// grpc would dial again, calls fail with ReasonClosed. So whoever holds a conn knows
// that it has been the same kubelet all the time, and no back-off of grpc delays
// the next one.
type conn struct {
	path   string
	socket fs.FileInfo // what was at the path
	raw    *rawConn
	grpc   *grpc.ClientConn
	keep   func(string) bool
	seed   maphash.Seed
}

var _ kubelet = (*conn)(nil)

// errOver says that a conn has had its connection.
var errOver = errors.New("the connection has ended")

// dial connects to the socket; grpc begins to speak with the first call.
func dial(ctx context.Context, o Options, seed maphash.Seed) (kubelet, *failure) {
	path := o.Socket
	socket, err := os.Stat(path)
	if err != nil {
		return nil, statFailure(path, err)
	}
	if socket.Mode()&fs.ModeSocket == 0 {
		return nil, fail(ReasonNotASocket, "connect to the kubelet's socket %q: it is %s (check --pod-resources-kubelet-socket; a container runtime makes a directory of what it cannot mount)", path, kindOf(socket))
	}
	dialer := net.Dialer{Timeout: o.Timeout}
	plain, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, dialFailure(path, err)
	}
	raw := &rawConn{Conn: plain}
	var taken atomic.Bool
	cc, err := grpc.NewClient("passthrough:///kubelet",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			if taken.Swap(true) {
				return nil, errOver
			}
			return raw, nil
		}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: time.Hour, MaxDelay: time.Hour}, MinConnectTimeout: o.Timeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(o.MaxMessage), grpc.ForceCodecV2(codec{})),
		grpc.WithIdleTimeout(0), // a connection that ends means a kubelet that ends
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableHealthCheck(), grpc.WithDisableRetry())
	if err != nil {
		_ = raw.Close() // nothing was sent
		return nil, fail(ReasonError, "connect to the kubelet's socket %q: %w", path, err)
	}
	return &conn{path: path, socket: socket, raw: raw, grpc: cc, keep: o.Keep, seed: seed}, nil
}

func (c *conn) list(ctx context.Context) (*answer, *failure) {
	return c.call(ctx, v1.PodResourcesLister_List_FullMethodName, (*decoder).list)
}

func (c *conn) able(ctx context.Context) (*answer, *failure) {
	return c.call(ctx, v1.PodResourcesLister_GetAllocatableResources_FullMethodName, (*decoder).able)
}

func (c *conn) call(ctx context.Context, method string, read func(*decoder, []byte) (*answer, error)) (*answer, *failure) {
	r := reply{read: read, decoder: newDecoder(c.keep, c.seed)}
	if err := c.grpc.Invoke(ctx, method, nothing{}, &r); err != nil {
		if c.raw.foreign.Load() {
			return nil, fail(ReasonNotGRPC, "call %s at %q: whoever listens does not speak gRPC (check --pod-resources-kubelet-socket)", method, c.path)
		}
		return nil, callFailure(c.path, method, err)
	}
	switch {
	case errors.Is(r.err, errTooMany):
		return nil, fail(ReasonTooLarge, "call %s at %q: the answer has %w", method, c.path, r.err)
	case r.err != nil:
		return nil, fail(ReasonMalformed, "call %s at %q: read the answer: %w (is it a kubelet?)", method, c.path, r.err)
	}
	return r.answer, nil
}

// stale says that the path leads to another socket. A socket that is gone is none:
// the connection works without its name. The time of its making is compared, too,
// since file systems use the number of a removed file again at once.
func (c *conn) stale() bool {
	now, err := os.Stat(c.path)
	return err == nil && (!os.SameFile(now, c.socket) || !now.ModTime().Equal(c.socket.ModTime()))
}

func (c *conn) close() {
	_ = c.grpc.Close() // there is nothing that could be lost
	_ = c.raw.Close()  // where grpc never took it
}

func kindOf(f fs.FileInfo) string {
	switch m := f.Mode(); {
	case m.IsDir():
		return "a directory"
	case m.IsRegular():
		return "a plain file"
	default:
		return "no socket but " + m.Type().String()
	}
}

// rawConn sees from the first bytes whether the other side speaks HTTP/2, which
// begins with a SETTINGS frame: 3 bytes of length, and 4 (RFC 9113, 3.4 and 6.5).
type rawConn struct {
	net.Conn
	seen    int
	foreign atomic.Bool
}

// Read implements net.Conn; grpc reads from one goroutine.
func (c *rawConn) Read(p []byte) (int, error) {
	const kind, settings = 3, 4
	n, err := c.Conn.Read(p)
	if c.seen <= kind && c.seen+n > kind && p[kind-c.seen] != settings {
		c.foreign.Store(true)
	}
	c.seen = min(c.seen+n, kind+1)
	return n, err
}

// codec reads answers with a decoder. Its requests have no fields.
type codec struct{}

// nothing is a request without fields.
type nothing struct{}

// reply is where an answer goes. An error in it is no error of the call, whose
// kind grpc would hide.
type reply struct {
	read    func(*decoder, []byte) (*answer, error)
	decoder *decoder
	answer  *answer
	err     error
}

// Name implements encoding.CodecV2. It is part of the content type.
func (codec) Name() string { return "proto" }

// Marshal implements encoding.CodecV2.
func (codec) Marshal(any) (mem.BufferSlice, error) { return nil, nil }

// Unmarshal implements encoding.CodecV2.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	r := v.(*reply)
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	r.answer, r.err = r.read(r.decoder, buffer.ReadOnlyData())
	return nil
}
