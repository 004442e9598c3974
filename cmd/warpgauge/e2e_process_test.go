package main_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"warpgauge/pkg/eventually"
)

// build returns the real binary, which is compiled once for all tests, under the
// race detector if they are.
func build(t *testing.T) string {
	t.Helper()
	exe, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

var built = sync.OnceValues(func() (exe string, err error) {
	exe = filepath.Join(os.Getenv("WARPGAUGE_TEST_DIR"), "warpgauge") // made by TestMain
	if _, err := os.Stat(exe); err == nil {
		return exe, nil // of the process that started this one
	}
	beside := fmt.Sprintf("%s.%d", exe, os.Getpid())
	args := []string{"build", "-o", beside}
	if raceEnabled {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, ".")...)
	cmd.Env = os.Environ()
	if os.Getenv("CGO_CFLAGS") == "" {
		cmd.Env = append(cmd.Env, "CGO_CFLAGS=-g -O2 -Wno-deprecated-declarations")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the binary: %w\n%s", err, out)
	}
	return exe, os.Rename(beside, exe)
})

// program returns the path of a program that the test needs. Where it is
// missing the test skips, or fails if WARPGAUGE_REQUIRE names the program.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if slices.Contains(strings.Split(os.Getenv("WARPGAUGE_REQUIRE"), ","), name) {
		t.Fatalf("%s is required by WARPGAUGE_REQUIRE but missing: %v", name, err)
	}
	t.Skipf("%s is not installed", name)
	return ""
}

// process is a child that the test started. It is ended with the test.
type process struct {
	cmd     *exec.Cmd
	log     *logBuffer
	started time.Time
	done    chan struct{} // closed when the process has ended; err is set then
	err     error
}

func launch(t *testing.T, exe string, args ...string) *process {
	t.Helper()
	p := &process{log: &logBuffer{}, done: make(chan struct{})}
	start := func() error {
		p.cmd = exec.Command(exe, args...)
		p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
		p.cmd.Env = cleanEnvironment()
		// A test that is killed must not leave the child behind.
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		p.started = time.Now()
		return p.cmd.Start()
	}
	err := start()
	// A process that another test forked just now may still hold the descriptor by
	// which a test wrote this program (https://go.dev/issue/22315).
	for end := time.Now().Add(eventually.Patience); errors.Is(err, syscall.ETXTBSY) && time.Now().Before(end); err = start() {
		time.Sleep(time.Millisecond)
	}
	if err != nil {
		t.Fatalf("start %q: %v", exe, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Logf("output of %s %q:\n%s", filepath.Base(exe), args, p.log.tail(8000))
		}
	})
	return p
}

// cleanEnvironment keeps variables that would change flags out of the child.
func cleanEnvironment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		for _, prefix := range []string{"DCGM_", "WARPGAUGE_", "NODE_NAME=", "KUBERNETES_", "NVIDIA_"} {
			if strings.HasPrefix(v, prefix) {
				return true
			}
		}
		return false
	})
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("send %v: %v", s, err)
	}
}

// exitCode waits for the end of the process.
func (p *process) exitCode(t *testing.T) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(eventually.Patience):
		t.Fatalf("process still runs after %v; its output:\n%s", eventually.Patience, p.log.tail(4000))
	}
	var exit *exec.ExitError
	if p.err != nil && !errors.As(p.err, &exit) {
		t.Fatalf("wait for the process: %v", p.err)
	}
	return p.cmd.ProcessState.ExitCode()
}

// exporter is a running warpgauge.
type exporter struct {
	*process
	url   string   // without a path
	fault *trouble // that isolated gave it
}

var servingLine = regexp.MustCompile(`serving (http://127\.0\.0\.1:\d+)`)

// serve starts warpgauge on a free port of loopback with simulated GPUs only.
func serve(t *testing.T, exe string, args ...string) *exporter {
	t.Helper()
	args = append([]string{
		"--address=127.0.0.1:0", "--enable-fake",
		"--enable-nvml=false", "--enable-dcgm=false", "--enable-rocm=false",
	}, args...)
	e := &exporter{process: launch(t, exe, args...)}
	e.awaitAddress(t)
	return e
}

// awaitAddress waits until the exporter says in its log where it serves.
func (e *exporter) awaitAddress(t *testing.T) {
	t.Helper()
	eventually.OK(t, "the address in the log", func() error {
		if m := servingLine.FindStringSubmatch(e.log.String()); m != nil {
			e.url = m[1]
			return nil
		}
		select {
		case <-e.done:
			t.Fatalf("warpgauge ended with code %d:\n%s", e.cmd.ProcessState.ExitCode(), e.log.String())
		default:
		}
		return errors.New("not there yet")
	})
}

// runToEnd runs a command that ends by itself.
func runToEnd(t *testing.T, exe string, args ...string) (code int, output string) {
	t.Helper()
	p := launch(t, exe, args...)
	return p.exitCode(t), p.log.String()
}

// pipe runs a command over input and returns what it wrote.
func pipe(t *testing.T, input []byte, exe string, args ...string) (output string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, exe, args...)
	cmd.Stdin = bytes.NewReader(input)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// logBuffer collects what a child writes.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logBuffer) tail(n int) string {
	s := l.String()
	return s[max(0, len(s)-n):]
}

// file writes a file into a directory of the test's own.
func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	write(t, path, text)
	return path
}

// write replaces a file as an editor does: beside it, then renamed over it.
func write(t *testing.T, path, text string) {
	t.Helper()
	beside := fmt.Sprintf("%s.%d", path, time.Now().UnixNano())
	if err := os.WriteFile(beside, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(beside, path); err != nil {
		t.Fatal(err)
	}
}
