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
	"testing/iotest"
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

// answer listens on a socket and does the same to each connection.
func answer(t *testing.T, with func(net.Conn)) (path string) {
	t.Helper()
	path = socket(t)
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
			with(c)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return path
}

// TestForeign: a web server is known as none of gRPC's, also where it hangs up
// before grpc has said all that it wanted to.
func TestForeign(t *testing.T) {
	const refusal = "HTTP/1.1 400 Bad Request\r\n\r\n"
	for name, with := range map[string]func(net.Conn){
		"waits":                     func(c net.Conn) { _, _ = c.Write([]byte(refusal)); _, _ = io.Copy(io.Discard, c) },
		"reads some and hangs up":   func(c net.Conn) { _, _ = c.Read(make([]byte, 16)); _, _ = c.Write([]byte(refusal)) },
		"hangs up without a look":   func(c net.Conn) { _, _ = c.Write([]byte(refusal)) },
		"answers byte after byte":   func(c net.Conn) { _, _ = io.Copy(c, iotest.OneByteReader(strings.NewReader(refusal))) },
		"says too little to be any": func(c net.Conn) { _, _ = c.Write([]byte("220")) },
	} {
		t.Run(name, func(t *testing.T) {
			path := answer(t, with)
			for range 50 {
				c, err := Dial(t.Context(), path, time.Second, 1<<20)
				if err != nil {
					t.Fatal(err)
				}
				err = check(c)
				if foreign := name != "says too little to be any"; err == nil || c.Foreign() != foreign {
					t.Errorf("call of a web server: %v, foreign %v, want %v", err, c.Foreign(), foreign)
				}
				c.Close()
			}
		})
	}
}

// TestWire: whatever order reads, a failed write and the close come in, what the
// other side has said first is judged, and every byte is read once.
func TestWire(t *testing.T) {
	for said, foreign := range map[string]bool{
		"\x00\x00\x06\x04more": false, "\x00\x00\x06\x05more": true, "HTTP": true, "HTT": false, "": false,
	} {
		for _, room := range []int{1, 3, 4, 5, 64} {
			path := answer(t, func(c net.Conn) { _, _ = io.WriteString(c, said) })
			plain, err := net.Dial("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			w, err := newWire(plain.(*net.UnixConn))
			if err != nil {
				t.Fatal(err)
			}
			if n, err := w.Read(nil); n != 0 || err != nil {
				t.Errorf("read of nothing: %d, %v", n, err)
			}
			eventually.True(t, "the other side hangs up", func() bool { _, err := w.Write([]byte("x")); return err != nil })
			if got := w.foreign.Load(); got != foreign {
				t.Errorf("%q: foreign %v after a failed write, want %v", said, got, foreign)
			}
			heard, p := "", make([]byte, room)
			for {
				n, err := w.Read(p)
				heard += string(p[:n])
				if err != nil {
					if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) { // it did not read what we wrote
						t.Errorf("%q: read: %v", said, err)
					}
					break
				}
			}
			if heard != said || w.foreign.Load() != foreign {
				t.Errorf("read %q, want %q; foreign %v, want %v", heard, said, w.foreign.Load(), foreign)
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
			if n, err := w.Read(p); n != 0 || !errors.Is(err, net.ErrClosed) {
				t.Errorf("read after close: %d, %v", n, err)
			}
			if err := w.Close(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("second close: %v", err)
			}
		}
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

func TestWhyCall(t *testing.T) {
	path := socket(t)
	serve(t, path)
	c, err := Dial(t.Context(), path, time.Second, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for code, want := range map[codes.Code]Cause{
		codes.DeadlineExceeded: Timeout, codes.Canceled: Timeout, codes.Unimplemented: Unimplemented, codes.Unavailable: Closed,
		codes.PermissionDenied: Denied, codes.Unauthenticated: Denied, codes.ResourceExhausted: RateLimited, codes.Internal: Other,
	} {
		err := status.Error(code, "text")
		if got := c.WhyCall(err); got != want {
			t.Errorf("%v: %q, want %q", code, got, want)
		}
		if got, want := Said(err), code.String()+": text"; got != want {
			t.Errorf("said %q, want %q", got, want)
		}
	}
	// grpc's own words for what is beyond our limit.
	small, err := Dial(t.Context(), path, time.Second, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer small.Close()
	if err := check(small); small.WhyCall(err) != TooLarge {
		t.Errorf("an answer beyond the limit: %v is %q, want %q", err, small.WhyCall(err), TooLarge)
	}
	web, err := Dial(t.Context(), answer(t, func(c net.Conn) { _, _ = c.Write([]byte("HTTP/1.1 400 \r\n\r\n")) }), time.Second, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer web.Close()
	if err := check(web); web.WhyCall(err) != NotGRPC {
		t.Errorf("a web server: %v is %q, want %q", err, web.WhyCall(err), NotGRPC)
	}
}
