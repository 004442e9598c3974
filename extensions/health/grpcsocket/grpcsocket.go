// Package grpcsocket serves gRPC on a Unix socket of this node, for AMD's device plugin. Only the
// exporter's own user can connect, from the moment the socket has its name. The socket replaces
// only one on which no process listens. Clients, calls and requests are bounded.
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
)

const (
	maxClients  = 32          // more wait until one leaves
	maxStreams  = 16          // calls at a time of one client
	maxRequest  = 64 << 10    // bytes
	probe       = time.Second // to find out whether a process listens
	longestPath = 107         // bytes of a Unix socket's path
)

// Server serves on one socket. Call Listen, then Run, each once.
type Server struct {
	path     string
	register func(grpc.ServiceRegistrar)
	log      *zap.Logger
	listener net.Listener
	file     fs.FileInfo // of the socket
}

// New returns a Server for the services that register adds. It does nothing before Listen.
func New(path string, register func(grpc.ServiceRegistrar), log *zap.Logger) *Server {
	return &Server{path: path, register: register, log: log}
}

// Listen makes the socket. Its errors are for a person to put right.
func (s *Server) Listen() (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("socket %q: %w", s.path, err)
		}
	}()
	dir := filepath.Dir(s.path)
	if err := checkDirectory(dir); err != nil {
		return err
	}
	if err := s.free(); err != nil {
		return err
	}
	// It is made in a directory that only we can enter, and moved when it has its mode.
	private, err := os.MkdirTemp(dir, ".w")
	if err != nil {
		return err
	}
	defer os.Remove(private) //nolint:errcheck // an empty directory that only we can enter
	made := filepath.Join(private, "s")
	if len(made) > longestPath || len(s.path) > longestPath {
		return fmt.Errorf("the path is too long: %d bytes less", max(len(made), len(s.path))-longestPath)
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", made)
	if err != nil {
		return err
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false) // not ListenUnix: it has no context
	err = os.Chmod(made, 0o600)                          // as AMD's exporter has it
	if err == nil {
		err = os.Rename(made, s.path)
	}
	if err == nil {
		s.file, err = os.Lstat(s.path)
	}
	if err != nil {
		_ = os.Remove(made) // it has no name that a client knows
		return errors.Join(err, listener.Close())
	}
	s.listener = listener
	return nil
}

// checkDirectory refuses a directory in which another user could put a socket in the place
// of ours. One that is missing is made if its parent is there.
func checkDirectory(dir string) error {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		// Clients of other users look up the socket in it, whatever the umask is.
		if err = errors.Join(os.Mkdir(dir, 0o755), os.Chmod(dir, 0o755)); err != nil { //nolint:gosec // as said
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

// free returns an error if something is at the path but a socket that a process has left.
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
		_ = c.Close() // nothing was said
		return errors.New("another process serves on it")
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return err
}

// Run serves until ctx ends, and removes the socket.
func (s *Server) Run(ctx context.Context) error {
	defer s.remove()
	server := grpc.NewServer(grpc.MaxConcurrentStreams(maxStreams), grpc.MaxRecvMsgSize(maxRequest), grpc.WaitForHandlers(true))
	s.register(server)
	s.log.Info("serving on a Unix socket", zap.String("path", s.path))
	served := make(chan error, 1)
	go func() { served <- server.Serve(netutil.LimitListener(s.listener, maxClients)) }()
	select {
	case err := <-served:
		return fmt.Errorf("socket %q: %w", s.path, err)
	case <-ctx.Done():
	}
	server.Stop() // ends streams, which do not end by themselves
	if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("socket %q: %w", s.path, err)
	}
	return nil
}

// remove removes the socket, unless another process has put its own in the place.
func (s *Server) remove() {
	if info, err := os.Lstat(s.path); err == nil && os.SameFile(info, s.file) {
		_ = os.Remove(s.path) // a socket that stays refuses connections, and the next start replaces it
	}
}
