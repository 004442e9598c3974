package programtest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/failing"
)

// What the test binary is in a process of its own.
const (
	as       = "WARPGAUGE_TEST_AS"
	asServer = "server" // writes where it listens, and is ready after the second request
	asTest   = "test"   // starts a process, writes its number, and does not end
)

func TestMain(m *testing.M) {
	switch os.Getenv(as) {
	case asServer:
		fmt.Fprintln(os.Stderr, serve())
	case asTest:
		p := sh(&failing.Test{}, "exec sleep 1000")
		fmt.Fprintf(os.Stderr, "started %d.\n", p.PID())
		<-p.Ended()
	default:
		goleak.VerifyTestMain(m)
	}
}

func itself(t *testing.T, role string) *Process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Start(t, exe, nil, Options{Env: append(os.Environ(), as+"="+role)})
}

func serve() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "on %s.\n", l.Addr())
	n := 0
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n++; n < 3 || r.URL.Path != "/ready" {
			http.Error(w, "not yet", http.StatusServiceUnavailable)
		}
	}))
}

func sh(tb testing.TB, script string) *Process {
	return Start(tb, "sh", []string{"-c", script}, Options{})
}

func TestEndsWithTheTest(t *testing.T) {
	var p *Process
	r := failing.Run(t, func(tb testing.TB) { p = sh(tb, "echo out; echo err >&2; exec sleep 1000") })
	eventually.True(t, "the output", func() bool { return p.Output() == "out\nerr\n" })
	if err := syscall.Kill(p.PID(), 0); err != nil {
		t.Errorf("process %d while the test runs: %v", p.PID(), err)
	}
	r.End()
	select {
	case <-p.Ended():
	default:
		t.Error("it has not ended")
	}
	if err := syscall.Kill(p.PID(), 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d after the test: %v, want none", p.PID(), err)
	}
	if r.Message != "" || r.Logged != "" {
		t.Errorf("failed %q, logged %q", r.Message, r.Logged)
	}
}

// A test that is killed runs no cleanup.
func TestEndsWithAKilledTest(t *testing.T) {
	starter := itself(t, asTest)
	var pid int
	starter.Await(t, "the number of its process", func() error {
		_, err := fmt.Sscanf(starter.Output(), "started %d.", &pid)
		return err
	})
	starter.Signal(t, syscall.SIGKILL)
	if code := starter.ExitCode(t); code != -1 {
		t.Fatalf("exit code %d", code)
	}
	eventually.True(t, "the end of what it has started", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(stat), ") Z ") // its parent may not have waited for it
	})
}

func TestEndsBefore(t *testing.T) {
	looks := 0
	r := failing.Run(t, func(tb testing.TB) {
		sh(tb, "echo no such file; exit 7").Await(tb, "the port", func() error { looks++; return errors.New("none") })
	})
	r.End()
	if want := "the port: sh has ended (exit status 7), its output:\nno such file\n"; r.Message != want {
		t.Errorf("failed %q, want %q", r.Message, want)
	}
	if want := "output of sh [\"-c\" \"echo no such file; exit 7\"]:\nno such file\n"; r.Logged != want {
		t.Errorf("logged %q, want %q", r.Logged, want)
	}
}

func TestDoesNotStart(t *testing.T) {
	r := failing.Run(t, func(tb testing.TB) { Start(tb, "/nowhere/prometheus", nil, Options{}) })
	if want := `start "/nowhere/prometheus": fork/exec /nowhere/prometheus: no such file or directory`; r.Message != want || len(r.Cleanups) > 0 {
		t.Errorf("failed %q, want %q", r.Message, want)
	}
}

// A file that is still being written is started when that is over.
func TestBusyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho started\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := exec.Command(path).Run(); !errors.Is(err, syscall.ETXTBSY) {
		t.Skipf("this kernel starts what is written to: %v", err)
	}
	time.AfterFunc(50*time.Millisecond, func() { _ = writer.Close() })
	p := Start(t, path, nil, Options{})
	if code := p.ExitCode(t); code != 0 || p.Output() != "started\n" {
		t.Errorf("code %d, output %q", code, p.Output())
	}
}

func TestSignalAndExitCode(t *testing.T) {
	f := func(script string, s os.Signal, want int) {
		t.Helper()
		p := sh(t, script)
		p.Await(t, "its first line", func() error {
			if p.Output() == "" {
				return io.EOF
			}
			return nil
		})
		p.Signal(t, s)
		if code := p.ExitCode(t); code != want {
			t.Errorf("%s, %v: code %d, want %d", script, s, code, want)
		}
		r := failing.Run(t, func(tb testing.TB) { p.Signal(tb, s) })
		if want := fmt.Sprintf("send %v to sh: os: process already finished", s); r.Message != want {
			t.Errorf("a signal to no process: failed %q, want %q", r.Message, want)
		}
	}
	f("trap 'exit 3' TERM; echo; while :; do sleep 0.01; done", syscall.SIGTERM, 3)
	f("trap 'exit 0' INT; echo; while :; do sleep 0.01; done", os.Interrupt, 0)
	f("echo; exec sleep 1000", syscall.SIGKILL, -1)
}

func TestAddress(t *testing.T) {
	p := itself(t, asServer)
	url := p.AwaitReady(t, "/ready")
	if want := "on " + strings.TrimPrefix(url, "http://") + ".\n"; p.Output() != want {
		t.Errorf("it is %q, found was %q", p.Output(), url)
	}
	address, err := p.Address()
	if err != nil || "http://"+address != url {
		t.Errorf("address %q, %v", address, err)
	}
	if err := answers(t.Context(), http.DefaultClient, url+"/other"); err == nil || !strings.HasSuffix(err.Error(), "/other: 503 Service Unavailable") {
		t.Errorf("another path: %v", err)
	}
	http.DefaultClient.CloseIdleConnections()
	// This process listens, the next one does not.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if address, err := sh(t, "exec sleep 1000").Address(); err == nil {
		t.Errorf("sleep listens on %s", address)
	}
}
