package podresources

import (
	"context"
	"errors"
	"hash/maphash"
	"io/fs"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"warpgauge/pkg/unixgrpc"
)

// kubelet is one connection to the kubelet. Its calls are made from one goroutine.
type kubelet interface {
	list(ctx context.Context) (*answer, *failure)
	able(ctx context.Context) (*answer, *failure)
	stale() bool // another socket is at the path now
	close()
}

// conn is a kubelet on its socket: the same one all the time, since it is one
// connection and never another. When that ends, calls fail with ReasonClosed.
type conn struct {
	path   string
	socket fs.FileInfo // what was at the path
	grpc   *unixgrpc.Conn
	keep   func(string) bool
	seed   maphash.Seed
}

var _ kubelet = (*conn)(nil)

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
	c, err := unixgrpc.Dial(ctx, path, o.Timeout, o.MaxMessage, grpc.ForceCodecV2(codec{}))
	if err != nil {
		return nil, dialFailure(path, err)
	}
	return &conn{path: path, socket: socket, grpc: c, keep: o.Keep, seed: seed}, nil
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
		return nil, callFailure(c.path, method, c.grpc.WhyCall(err), err)
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

func (c *conn) close() { c.grpc.Close() }

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
