// Package grpcsocket serves gRPC on a Unix socket of this node: the health stream, and what
// AMD's device plugin asks. The socket's file has its mode and group from the moment it has
// its name, and takes the place only of a socket on which no process listens. Clients,
// streams and requests are bounded, so that no client can keep another from its answer.
package grpcsocket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

const (
	maxClients    = 32       // more wait until one leaves
	maxStreams    = 16       // calls at a time of one client
	maxRequest    = 64 << 10 // bytes
	maxIdle       = 5 * time.Minute
	handshake     = 10 * time.Second
	silence       = 30 * time.Second // after which a client is asked whether it still reads …
	silenceAnswer = 20 * time.Second // … and how long it may take to answer
	probe         = time.Second      // to find out whether a process listens
	longestPath   = 107              // bytes of a Unix socket's path
)

// Options of New.
type Options struct {
	Path  string
	Mode  fs.FileMode // who may connect
	Group string      // of the file, by name or number; "": that of the process
	// Register adds the services.
	Register func(grpc.ServiceRegistrar)
	Log      *zap.Logger
}

// Server serves on one socket. Call Listen, then Run, each once.
type Server struct {
	o        Options
	listener net.Listener
	file     fs.FileInfo // of the socket
}

// New returns a Server that does nothing yet.
func New(o Options) *Server { return &Server{o: o} }

// Listen makes the socket. Its errors are for a person to put right.
func (s *Server) Listen() error {
	if err := s.listen(); err != nil {
		return fmt.Errorf("socket %q: %w", s.o.Path, err)
	}
	return nil
}

func (s *Server) listen() error {
	group, err := groupID(s.o.Group)
	if err != nil {
		return err
	}
	dir := filepath.Dir(s.o.Path)
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
	if len(made) > longestPath || len(s.o.Path) > longestPath {
		return fmt.Errorf("the path is too long: %d bytes less", max(len(made), len(s.o.Path))-longestPath)
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", made)
	if err != nil {
		return err
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false) // not ListenUnix: it has no context
	err = errors.Join(os.Chown(made, -1, group), os.Chmod(made, s.o.Mode))
	if err == nil {
		err = os.Rename(made, s.o.Path)
	}
	if err == nil {
		s.file, err = os.Lstat(s.o.Path)
	}
	if err != nil {
		_ = os.Remove(made) // it has no name that a client knows
		return errors.Join(err, listener.Close())
	}
	s.listener = listener
	return nil
}

// groupID is -1, which changes nothing, for "".
func groupID(name string) (int, error) {
	if name == "" {
		return -1, nil
	}
	if id, err := strconv.ParseUint(name, 10, 31); err == nil {
		return int(id), nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, fmt.Errorf("group %q: %w", name, err)
	}
	return strconv.Atoi(g.Gid)
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
	info, err := os.Lstat(s.o.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("it is there and not a socket (%v)", info.Mode())
	}
	c, err := (&net.Dialer{Timeout: probe}).DialContext(context.Background(), "unix", s.o.Path)
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
	server := grpc.NewServer(
		grpc.MaxConcurrentStreams(maxStreams), grpc.MaxRecvMsgSize(maxRequest), grpc.ConnectionTimeout(handshake), grpc.WaitForHandlers(true),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: maxIdle, Time: silence, Timeout: silenceAnswer}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: silenceAnswer, PermitWithoutStream: true}))
	s.o.Register(server)
	s.o.Log.Info("serving on a Unix socket", zap.String("path", s.o.Path), zap.Stringer("mode", s.o.Mode))
	served := make(chan error, 1)
	go func() { served <- server.Serve(netutil.LimitListener(s.listener, maxClients)) }()
	select {
	case err := <-served:
		return fmt.Errorf("socket %q: %w", s.o.Path, err)
	case <-ctx.Done():
	}
	server.Stop() // ends streams, which do not end by themselves
	if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("socket %q: %w", s.o.Path, err)
	}
	return nil
}

// remove removes the socket, unless another process has put its own in the place.
func (s *Server) remove() {
	if info, err := os.Lstat(s.o.Path); err == nil && os.SameFile(info, s.file) {
		_ = os.Remove(s.o.Path) // what is left refuses connections, and the next start replaces it
	}
}
