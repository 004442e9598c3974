package grpcsocket_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"warpgauge/extensions/health/grpcsocket"
	"warpgauge/internal/testkit"
)

var must = testkit.Must

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newServer(path string) (*grpcsocket.Server, error) {
	register := func(r grpc.ServiceRegistrar) { grpc_health_v1.RegisterHealthServer(r, health.NewServer()) }
	return grpcsocket.Listen(path, register, zap.NewNop())
}

// serve starts a server. stop ends it.
func serve(t *testing.T, path string) (stop func()) {
	t.Helper()
	s := testkit.Get(newServer(path))(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("it ended with %v", err)
		}
	}
}

func client(t *testing.T, path string) grpc_health_v1.HealthClient {
	return grpc_health_v1.NewHealthClient(connection(t, path))
}

func connection(t *testing.T, path string) *grpc.ClientConn {
	t.Helper()
	c := testkit.Get(grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy()))(t)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestServe(t *testing.T) {
	dir := testkit.ShortDir(t)
	path := filepath.Join(dir, "made", "health.sock")
	defer syscall.Umask(syscall.Umask(0o077)) // umask of the systemd unit
	stop := serve(t, path)
	info, err := os.Stat(filepath.Dir(path))
	testkit.ErrorIf(t, err != nil || info.Mode().Perm() != 0o755, "the directory is %v, %v", info, err)
	info, err = os.Lstat(path)
	testkit.ErrorIf(t, err != nil || info.Mode() != fs.ModeSocket|0o600, "the socket is %v, %v", info, err)
	if left, _ := filepath.Glob(filepath.Join(dir, "made", ".w*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	watch := testkit.Get(client(t, path).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{}))(t)
	if m, err := watch.Recv(); err != nil || m.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("received %v, %v", m, err)
	}
	stop()
	if _, err := watch.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ended with %v, want Unavailable", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}

// TestStranger: the socket's mode keeps other users out.
func TestStranger(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	dir := testkit.ShortDir(t)
	must(t, os.Chmod(dir, 0o755))
	path := filepath.Join(dir, "s")
	defer serve(t, path)()
	connect := func() error {
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // it alone changes its user, and ends with the goroutine
			_, _, _ = syscall.RawSyscall(syscall.SYS_SETUID, 65534, 0, 0)
			fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
			done <- cmp.Or(err, syscall.Connect(fd, &syscall.SockaddrUnix{Name: path}), syscall.Close(fd))
		}()
		return <-done
	}
	err := connect()
	testkit.ErrorIf(t, !errors.Is(err, syscall.EACCES), "another user connects: %v", err)
	must(t, os.Chmod(path, 0o666)) // so only the mode kept it out
	must(t, connect())
}

// TestStalledCalls: clients that begin calls and send no request, again and again, do not keep others out.
func TestStalledCalls(t *testing.T) {
	path := filepath.Join(testkit.ShortDir(t), "s")
	defer serve(t, path)()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	var stalled sync.WaitGroup
	for range 40 {
		c := connection(t, path)
		stalled.Go(func() {
			for ctx.Err() == nil {
				if s, err := c.NewStream(ctx, &grpc.StreamDesc{}, grpc_health_v1.Health_Check_FullMethodName, grpc.WaitForReady(true)); err == nil {
					_ = s.RecvMsg(new(grpc_health_v1.HealthCheckResponse)) // fails by design
				}
			}
		})
	}
	time.Sleep(100 * time.Millisecond) // or they come later, and the call is easier
	testkit.Get(client(t, path).Check(ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.WaitForReady(true)))(t)
	cancel()
	stalled.Wait()
}

func TestListen(t *testing.T) {
	long := filepath.Join(testkit.ShortDir(t), strings.Repeat("x", 100))
	tests := []struct {
		name    string
		prepare func(t *testing.T, path string)
		path    string // default: a socket in an empty directory
		want    string // part of the error; "": success
	}{
		{name: "what a process has left", prepare: func(t *testing.T, path string) {
			l := listen(t, path)
			l.SetUnlinkOnClose(false)
			_ = l.Close()
		}},
		{name: "another process serves", prepare: func(t *testing.T, path string) { listen(t, path) }, want: "another process serves on it"},
		{name: "a file", prepare: func(t *testing.T, path string) {
			must(t, os.WriteFile(path, []byte("precious"), 0o600))
		}, want: "it is there and not a socket"},
		{name: "a link to a socket", prepare: func(t *testing.T, path string) {
			must(t, os.Symlink("elsewhere", path))
		}, want: "it is there and not a socket"},
		{name: "others can write in the directory", prepare: func(t *testing.T, path string) {
			must(t, os.Chmod(filepath.Dir(path), 0o777))
		}, want: "other users can write"},
		{name: "another user's directory", prepare: func(t *testing.T, path string) {
			_ = os.Chown(filepath.Dir(path), 12345, -1) // only root may
		}, want: map[int]string{0: "belongs to user 12345"}[os.Geteuid()]},
		{name: "a sticky directory", prepare: func(t *testing.T, path string) {
			must(t, os.Chmod(filepath.Dir(path), 0o777|fs.ModeSticky))
		}},
		{name: "a path that is too long", path: long, want: fmt.Sprintf("the path is too long: %d bytes less", len(long)-107)},
		{name: "no directory", path: "/nonexistent/directory/s", want: "mkdir /nonexistent/directory: no such file or directory"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(testkit.ShortDir(t), "s")
			if tt.prepare != nil {
				tt.prepare(t, path)
			}
			before, _ := os.Lstat(path)
			s, err := newServer(cmp.Or(tt.path, path))
			if tt.want == "" {
				must(t, err)
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				must(t, s.Run(ctx))
				return
			}
			testkit.ErrorIf(t, err == nil || !strings.Contains(err.Error(), tt.want), "error %v, want one with %q", err, tt.want)
			after, _ := os.Lstat(path)
			testkit.ErrorIf(t, before != nil && (after == nil || !os.SameFile(before, after)), "what was at the path is gone")
		})
	}
}

func listen(t *testing.T, path string) *net.UnixListener {
	t.Helper()
	l := testkit.Get(net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}))(t)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// TestReplaced: at exit a server leaves the socket of its successor.
func TestReplaced(t *testing.T) {
	path := filepath.Join(testkit.ShortDir(t), "s")
	stop := serve(t, path)
	must(t, os.Remove(path))
	later := listen(t, path)
	stop()
	c, err := net.DialTimeout("unix", path, time.Minute)
	if err != nil {
		t.Fatalf("the socket of the later process is gone: %v", err)
	}
	_, _ = c.Close(), later.Close()
}
