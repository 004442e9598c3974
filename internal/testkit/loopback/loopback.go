// Package loopback reserves a TCP port of 127.0.0.1 for a server that starts later or restarts: for tests, benchmarks
// and tools that must know the port before the server starts.
package loopback

import (
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// A Port is reserved: the system does not give it to a process that asks for any free port, to listen or to connect.
// A process that names the port may listen on it with SO_REUSEADDR, which Go's listeners set. Without a listener, the
// system refuses connections.
//
// A port that was free a moment ago is not as safe: on a busy machine another process may get it the next moment, and
// keep it.
type Port struct {
	fd     int
	number int
}

// Reserve reserves a free port until Close.
func Reserve() (*Port, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	unix.CloseOnExec(fd)
	p := &Port{fd: fd}
	if err := p.bind(); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return p, nil
}

// bind binds without listening: the socket has the port, but a listener may share it if both set SO_REUSEADDR (socket(7)).
func (p *Port) bind() error {
	if err := unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return os.NewSyscallError("setsockopt", err)
	}
	if err := unix.Bind(p.fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return os.NewSyscallError("bind", err)
	}
	name, err := unix.Getsockname(p.fd)
	if err != nil {
		return os.NewSyscallError("getsockname", err)
	}
	p.number = name.(*unix.SockaddrInet4).Port
	return nil
}

// Address returns host:port.
func (p *Port) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.number)) }

// Close releases the port. A listener on it keeps running.
func (p *Port) Close() error { return os.NewSyscallError("close", unix.Close(p.fd)) }
