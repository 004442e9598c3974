package unixgrpc

import (
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// wire sees from the first bytes whether the other side speaks HTTP/2, which begins
// with a SETTINGS frame: 3 bytes of length, and 4 (RFC 9113, 3.4 and 4.1).
//
// Who does not understand grpc's greeting answers and hangs up, so that grpc, in the
// midst of writing, may give up before it has read the answer. So wire looks at what
// has come as well when a write fails, and before it closes.
type wire struct {
	net.Conn
	system  syscall.RawConn
	mu      sync.Mutex   // makes reading the first bytes and counting them one
	read    atomic.Int32 // bytes so far, up to first
	foreign atomic.Bool
}

func newWire(c *net.UnixConn) (*wire, error) {
	system, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &wire{Conn: c, system: system}, nil
}

// The first bytes, and which of them is the kind of the frame.
const (
	first    = 4
	kind     = 3
	settings = 4
)

// Read implements net.Conn.
func (w *wire) Read(p []byte) (n int, err error) {
	if w.read.Load() == first || len(p) == 0 {
		return w.Conn.Read(p)
	}
	waited := w.system.Read(func(fd uintptr) (done bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if n, err = receive(fd, p, 0); err == syscall.EAGAIN { //nolint:errorlint // receive returns numbers
			return false
		}
		w.hear(p[:n])
		w.read.Store(min(w.read.Load()+int32(n), first))
		return true
	})
	switch {
	case waited != nil:
		return 0, waited
	case err != nil:
		return 0, os.NewSyscallError("recvfrom", err)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// Write implements net.Conn.
func (w *wire) Write(p []byte) (int, error) {
	n, err := w.Conn.Write(p)
	if err != nil {
		w.peek()
	}
	return n, err
}

// Close implements net.Conn.
func (w *wire) Close() error {
	w.peek()
	return w.Conn.Close()
}

// peek looks at what has come and nobody has read.
func (w *wire) peek() {
	_ = w.system.Control(func(fd uintptr) { // closed already: there is nothing to see
		w.mu.Lock()
		defer w.mu.Unlock()
		var p [first]byte
		if n, err := receive(fd, p[:], unix.MSG_PEEK); err == nil {
			w.hear(p[:n])
		}
	})
}

// hear judges bytes that follow those that were read. mu is held.
func (w *wire) hear(p []byte) {
	if i := kind - int(w.read.Load()); i >= 0 && i < len(p) && p[i] != settings {
		w.foreign.Store(true)
	}
}

// receive does not wait. Its errors are numbers, and then n is 0.
func receive(fd uintptr, p []byte, flags int) (n int, err error) {
	for {
		n, _, err = unix.Recvfrom(int(fd), p, flags|unix.MSG_DONTWAIT)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}
