// Package loopback keeps a TCP port of 127.0.0.1 for a server that is yet to start,
// or that starts again: for tests, benchmarks and tools that run servers whose port
// they must know beforehand.
package loopback

import (
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// A Port is kept from everybody who asks the system for any free port, to listen or
// to connect from. Who names it may listen on it, if with SO_REUSEADDR as Go's
// listeners have it. Without a listener, connections to it are refused.
//
// A port that was free a moment ago is not the same: on a busy machine another
// process has it the next moment, and may keep it.
type Port struct {
	fd     int
	number int
}

// Reserve keeps a port that is free until Close.
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

// bind binds and does not listen: a socket so bound has the port, and leaves it to
// one that listens if both have SO_REUSEADDR (socket(7)).
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

// Address is host:port.
func (p *Port) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.number)) }

// Close gives the port up. A listener on it keeps running.
func (p *Port) Close() error { return os.NewSyscallError("close", unix.Close(p.fd)) }
