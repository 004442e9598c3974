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
)

const (
	maxClients  = 32          // further clients wait
	maxStreams  = 16          // parallel calls per client
	maxRequest  = 64 << 10    // bytes
	probe       = time.Second // timeout of the check for a listening process
	longestPath = 107         // maximum length of a Unix socket's path, in bytes
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
	dir := filepath.Dir(s.path)
	if err := checkDirectory(dir); err != nil {
		return err
	}
	if err := s.free(); err != nil {
		return err
	}
	// Create the socket in a private directory; move it when it has its mode.
	private, err := os.MkdirTemp(dir, ".w")
	if err != nil {
		return err
	}
	defer os.Remove(private) //nolint:errcheck // an empty private directory
	made := filepath.Join(private, "s")
	if len(made) > longestPath || len(s.path) > longestPath {
		return fmt.Errorf("the path is too long: %d bytes less", max(len(made), len(s.path))-longestPath)
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", made)
	if err != nil {
		return err
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false) // net.ListenUnix takes no context
	err = os.Chmod(made, 0o600)                          // same mode as AMD's exporter
	if err == nil {
		err = os.Rename(made, s.path)
	}
	if err == nil {
		s.file, err = os.Lstat(s.path)
	}
	if err != nil {
		_ = os.Remove(made) // no client knows this name
		return errors.Join(err, listener.Close())
	}
	s.listener = listener
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

// free returns an error if anything but an abandoned socket is at the path.
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
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return nil
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
	server.Stop() // also ends streams
	if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("socket %q: %w", s.path, err)
	}
	return nil
}
