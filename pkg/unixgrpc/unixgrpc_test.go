package unixgrpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"warpgauge/pkg/eventually"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// socket is a path that is short enough for one.
func socket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "wg") //nolint:usetesting // the path of a socket may not be long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// serve runs gRPC's own health service until stop is called.
func serve(t *testing.T, path string) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(s, health.NewServer())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	stop = func() {
		s.Stop()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

func check(c *Conn) error {
	ctx, cancel := context.WithTimeout(context.Background(), eventually.Patience)
	defer cancel()
	_, err := grpc_health_v1.NewHealthClient(c).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	return err
}

// TestOneConnectionAndNeverAnother: a server that comes back at the same path is
// another one, of which a Conn knows nothing.
func TestOneConnectionAndNeverAnother(t *testing.T) {
	path := socket(t)
	stop := serve(t, path)
	c, err := Dial(t.Context(), path, time.Second, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := check(c); err != nil {
		t.Fatalf("call: %v", err)
	}
	stop()
	serve(t, path)
	for range 3 {
		if err := check(c); status.Code(err) != codes.Unavailable {
			t.Errorf("after the server ended and another came: %v, want Unavailable", err)
		}
	}
	if c.Foreign() {
		t.Error("a gRPC server passes for something else")
	}
	again, err := Dial(t.Context(), path, time.Second, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if err := check(again); err != nil {
		t.Errorf("call of a new Conn: %v", err)
	}
}

func TestForeign(t *testing.T) {
	path := socket(t)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 64)) // the preface; a client that cannot write it reads nothing
			_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			_, _ = io.Copy(io.Discard, c) // until the client has had enough
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	c, err := Dial(t.Context(), path, time.Second, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := check(c); err == nil || !c.Foreign() {
		t.Errorf("call of a web server: %v, foreign %v", err, c.Foreign())
	}
}

func TestWhy(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	left := socket(t)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: left, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	datagram := socket(t)
	d, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: datagram, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()

	for path, want := range map[string]Cause{
		filepath.Join(dir, "none"):   Absent,
		filepath.Join(plain, "file"): Absent,
		plain:                        NotASocket,
		dir:                          NotASocket,
		datagram:                     NotASocket,
		left:                         Refused,
	} {
		_, err := Dial(t.Context(), path, time.Second, 1<<20)
		if err == nil {
			t.Errorf("%s takes a connection", path)
		} else if got := Why(path, err); got != want {
			t.Errorf("%s: %q (%v), want %q", path, got, err, want)
		}
	}
	// What cannot be made here, where tests may run as root.
	for err, want := range map[error]Cause{
		syscall.EACCES: Denied, syscall.EPERM: Denied, syscall.EAGAIN: Timeout, context.DeadlineExceeded: Timeout,
		syscall.ECONNREFUSED: Refused, errors.New("else"): Other, syscall.EMFILE: Other,
	} {
		if got := Why("/none", fmt.Errorf("dial: %w", err)); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

func TestClip(t *testing.T) {
	f := func(in, want string) {
		t.Helper()
		if got := Clip(in); got != want {
			t.Errorf("Clip(%q) = %q, want %q", in, got, want)
		}
	}
	f("", "")
	f("short", "short")
	f("a\xffb", "a�b")
	f(strings.Repeat("é", 150), strings.Repeat("é", 150))
	f("x"+strings.Repeat("é", 150), "x"+strings.Repeat("é", 149)+"…")
	if n := len(Clip(strings.Repeat("0", 1_000_000))); n > 310 {
		t.Errorf("%d bytes of a million", n)
	}
}
