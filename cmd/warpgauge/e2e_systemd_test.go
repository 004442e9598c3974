package main_test

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"warpgauge/internal/testkit/eventually"
)

// TestE2ESystemd is the unit's view: Type=notify waits for a message, after which
// the port must be open; and hears when the exporter ends.
func TestE2ESystemd(t *testing.T) {
	exe := build(t)
	dir, err := os.MkdirTemp("", "wg") //nolint:usetesting // the path of a socket may not be long
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	must(t, err)
	t.Cleanup(func() { _ = socket.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	hear := func(want string) {
		t.Helper()
		must(t, socket.SetReadDeadline(time.Now().Add(eventually.Patience)))
		b := make([]byte, 4096)
		n, err := socket.Read(b)
		if err != nil {
			t.Fatalf("wait for %q: %v", want, err)
		}
		if got := string(b[:n]); got != want {
			t.Fatalf("systemd hears %q, want %q", got, want)
		}
	}

	e := serve(t, exe, "--isolation=process")
	hear("READY=1")
	if a := get(t, newClient(t), e.url+"/livez"); a.code != http.StatusOK {
		t.Errorf("GET /livez after READY=1: status %d", a.code)
	}
	e.Signal(t, os.Interrupt)
	hear("STOPPING=1")
	e.ends(t)
}
