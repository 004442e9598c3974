// Package grpcsocket serves gRPC on a Unix socket of this node, for AMD's device plugin. Only the
// exporter's own user can connect, at any time. It replaces an existing socket only if no process
// listens on it. Clients, calls and requests are bounded.
package grpcsocket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

const (
	maxClients  = 32              // further clients wait until one has to leave
	idle        = 2 * time.Second // then a client has to leave, and connect again if it has more calls
	grace       = time.Second     // for calls that have begun before
	maxStreams  = 16              // parallel calls per client
	maxRequest  = 64 << 10        // bytes
	probe       = time.Second     // timeout of the check for a listening process
	longestPath = 107             // maximum length of a Unix socket's path, in bytes
)

// Server serves one socket. Call Run once.
type Server struct {
	path     string
	register func(grpc.ServiceRegistrar)
	log      *zap.Logger
	listener net.Listener
	file     fs.FileInfo // identifies our socket
}

// Listen creates the socket for the services that register adds. Its errors tell a person how to correct the problem.
func Listen(path string, register func(grpc.ServiceRegistrar), log *zap.Logger) (*Server, error) {
	s := &Server{path: path, register: register, log: log}
	if err := s.listen(); err != nil {
		return nil, fmt.Errorf("socket %q: %w", path, err)
	}
	return s, nil
}

func (s *Server) listen() error {
	if len(s.path) > longestPath {
		return fmt.Errorf("the path is too long: %d bytes less", len(s.path)-longestPath)
	}
	if err := checkDirectory(filepath.Dir(s.path)); err != nil {
		return err
	}
	if err := s.free(); err != nil {
		return err
	}
	// Linux creates the file with the mode that its socket has before bind, so that no other user can connect meanwhile.
	private := func(_, _ string, c syscall.RawConn) error {
		var err error
		failed := c.Control(func(fd uintptr) { err = syscall.Fchmod(int(fd), 0o600) }) // same mode as AMD's exporter
		return errors.Join(failed, err)
	}
	listener, err := (&net.ListenConfig{Control: private}).Listen(context.Background(), "unix", s.path)
	if err != nil {
		return err
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false) // net.ListenUnix takes no context
	s.listener = listener
	if s.file, err = os.Lstat(s.path); err != nil {
		return errors.Join(err, listener.Close())
	}
	return nil
}

// checkDirectory refuses a directory where another user could replace our socket. It creates a
// missing directory if the parent exists.
func checkDirectory(dir string) error {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		// Clients of other users must be able to search it, whatever the umask.
		if err = errors.Join(os.Mkdir(dir, 0o755), os.Chmod(dir, 0o755)); err != nil { //nolint:gosec // see above
			return err
		}
		info, err = os.Stat(dir)
	}
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%q is not a directory", dir)
	case info.Mode()&fs.ModeSticky == 0 && info.Mode()&0o022 != 0:
		return fmt.Errorf("other users can write in %q (%v): name a directory in it, which is made", dir, info.Mode())
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%q belongs to user %d", dir, st.Uid)
	}
	return nil
}

// free removes an abandoned socket at the path. It returns an error if anything else is there.
func (s *Server) free() error {
	info, err := os.Lstat(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("it is there and not a socket (%v)", info.Mode())
	}
	c, err := (&net.Dialer{Timeout: probe}).DialContext(context.Background(), "unix", s.path)
	switch {
	case err == nil:
		_ = c.Close() // nothing was sent
		return errors.New("another process serves on it")
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, syscall.ECONNREFUSED):
		return os.Remove(s.path)
	}
	return err
}

// Run serves until ctx ends, then removes the socket.
func (s *Server) Run(ctx context.Context) error {
	defer func() {
		if info, err := os.Lstat(s.path); err == nil && os.SameFile(info, s.file) { // else another process replaced it
			_ = os.Remove(s.path) // a leftover socket refuses connections, and the next start replaces it
		}
	}()
	server := grpc.NewServer(grpc.MaxConcurrentStreams(maxStreams), grpc.MaxRecvMsgSize(maxRequest), grpc.WaitForHandlers(true),
		grpc.ConnectionTimeout(idle), grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idle, MaxConnectionAge: idle, MaxConnectionAgeGrace: grace}))
	s.register(server)
	s.log.Info("serving on a Unix socket", zap.String("path", s.path))
	defer context.AfterFunc(ctx, server.Stop)() // Stop also ends streams, and Serve waits for it
	err := server.Serve(netutil.LimitListener(s.listener, maxClients))
	if err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("socket %q: %w", s.path, err)
	}
	return nil
}
