package kube

import (
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"warpgauge/internal/testkit/eventually"
)

// shortPath is a path that is short enough for one.
func shortPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "wg") //nolint:usetesting // the path of a socket may not be long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// connect connects to a socket. An answer may have most bytes.
func connect(t *testing.T, path string, most int) (*conn, error) {
	t.Helper()
	c, f := (&socket{path: path, what: "the server", timeout: time.Second, maxBytes: most}).dial(t.Context())
	if f != nil {
		return nil, f.err
	}
	return c, nil
}

// serveHealth runs gRPC's own health service until stop is called.
func serveHealth(t *testing.T, path string) (stop func()) {
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

func callHealth(c *conn) error {
	ctx, cancel := context.WithTimeout(context.Background(), eventually.Patience)
	defer cancel()
	_, err := grpc_health_v1.NewHealthClient(c).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	return err
}

// TestOneConnectionAndNeverAnother: a server that comes back at the same path is
// another one, of which a Conn knows nothing.
func TestOneConnectionAndNeverAnother(t *testing.T) {
	path := shortPath(t)
	stop := serveHealth(t, path)
	c, err := connect(t, path, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if f := c.failure(callHealth(c)); f != nil {
		t.Fatalf("call: %v", f)
	}
	stop()
	serveHealth(t, path)
	for range 3 {
		if f := c.failure(callHealth(c)); f == nil || f.reason != ReasonClosed {
			t.Errorf("after the server ended and another came: %v, want %s", f, ReasonClosed)
		}
	}
	again, err := connect(t, path, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer again.close()
	if err := callHealth(again); err != nil {
		t.Errorf("call of a new Conn: %v", err)
	}
}

// answerAll listens on a socket and does the same to each connection.
func answerAll(t testing.TB, path string, with func(net.Conn)) {
	t.Helper()
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
}

// TestForeign: a web server is known as none of gRPC's, also where it hangs up before gRPC has said all that it wanted to.
func TestForeign(t *testing.T) {
	const refusal = "HTTP/1.1 400 Bad Request\r\n\r\n"
	for name, with := range map[string]func(net.Conn){
		"waits":                   func(c net.Conn) { _, _ = c.Write([]byte(refusal)); _, _ = io.Copy(io.Discard, c) },
		"reads some and closes":   func(c net.Conn) { _, _ = c.Read(make([]byte, 16)); _, _ = c.Write([]byte(refusal)) },
		"closes without reading":  func(c net.Conn) { _, _ = c.Write([]byte(refusal)) },
		"answers byte after byte": func(c net.Conn) { _, _ = io.Copy(c, iotest.OneByteReader(strings.NewReader(refusal))) },
		"says too little":         func(c net.Conn) { _, _ = c.Write([]byte("220")) },
	} {
		path := shortPath(t)
		answerAll(t, path, with)
		for range 50 {
			c, err := connect(t, path, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			if f := c.failure(callHealth(c)); f == nil || f.reason != ReasonNotGRPC {
				t.Errorf("%s: %+v, want %s", name, f, ReasonNotGRPC)
			}
			c.close()
		}
	}
}

func TestClip(t *testing.T) {
	f := func(in, want string) {
		t.Helper()
		if got := clip(in); got != want {
			t.Errorf("clip(%q) = %q, want %q", in, got, want)
		}
	}
	f("", "")
	f("short", "short")
	f("a\xffb", "a�b")
	f(strings.Repeat("é", 150), strings.Repeat("é", 150))
	f("x"+strings.Repeat("é", 150), "x"+strings.Repeat("é", 149)+"…")
	if n := len(clip(strings.Repeat("0", 1_000_000))); n > 310 {
		t.Errorf("%d bytes of a million", n)
	}
}

func TestReasonsOfCalls(t *testing.T) {
	for code, want := range map[codes.Code]string{
		codes.DeadlineExceeded: ReasonTimeout, codes.Canceled: ReasonTimeout, codes.Unimplemented: ReasonUnimplemented, codes.Unavailable: ReasonClosed,
		codes.PermissionDenied: ReasonDenied, codes.Unauthenticated: ReasonDenied, codes.ResourceExhausted: ReasonRateLimited, codes.Internal: ReasonError,
	} {
		if got := callReason(status.New(code, "text")); got != want {
			t.Errorf("%v: %q, want %q", code, got, want)
		}
	}
	// grpc's own words for what is beyond our limit.
	path := shortPath(t)
	serveHealth(t, path)
	small, err := connect(t, path, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer small.close()
	if f := small.failure(callHealth(small)); f == nil || f.reason != ReasonTooLarge {
		t.Errorf("an answer beyond the limit: %+v, want %q", f, ReasonTooLarge)
	}
}
