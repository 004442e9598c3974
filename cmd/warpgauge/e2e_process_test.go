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
	"testing"
	"time"

	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/programtest"
	"warpgauge/internal/testkit/race"
)

// build returns the real binary, which is compiled once for all tests, under the
// race detector if they are.
func build(t *testing.T) string {
	t.Helper()
	exe, err := built()
	must(t, err)
	return exe
}

var built = sync.OnceValues(func() (exe string, err error) {
	exe = filepath.Join(os.Getenv("WARPGAUGE_TEST_DIR"), "warpgauge") // made by TestMain
	if _, err := os.Stat(exe); err == nil {
		return exe, nil // of the process that started this one
	}
	next := fmt.Sprintf("%s.%d", exe, os.Getpid())
	args := []string{"build", "-o", next}
	if race.Enabled {
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
	return exe, os.Rename(next, exe)
})

// buildControl builds warpctl, as it is shipped.
func buildControl(t *testing.T) string {
	t.Helper()
	exe, err := control()
	must(t, err)
	return exe
}

var control = sync.OnceValues(func() (exe string, err error) {
	exe = filepath.Join(os.Getenv("WARPGAUGE_TEST_DIR"), fmt.Sprintf("warpctl.%d", os.Getpid()))
	cmd := exec.Command("go", "build", "-o", exe, "../warpctl")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build warpctl: %w\n%s", err, out)
	}
	return exe, nil
})

// launch starts a program for the time of the test.
func launch(t *testing.T, exe string, args ...string) *programtest.Process {
	t.Helper()
	return programtest.Start(t, exe, args, programtest.Options{Env: cleanEnvironment()})
}

// cleanEnvironment keeps variables that would change flags out of the child.
func cleanEnvironment() []string {
	return append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		for _, prefix := range []string{"DCGM_", "WARPGAUGE_", "NODE_NAME=", "KUBERNETES_", "NVIDIA_"} {
			if strings.HasPrefix(v, prefix) {
				return true
			}
		}
		return false
	}), "WARPGAUGE_EXPORTER_METRICS=full")
}

// exporter is a running warpgauge.
type exporter struct {
	*programtest.Process
	url   string   // without a path
	fault *trouble // that isolated gave it
}

var servingLine = regexp.MustCompile(`serving (https?://127\.0\.0\.1:\d+)`)

// serve starts warpgauge on a free port of loopback with simulated GPUs only.
func serve(t *testing.T, exe string, args ...string) *exporter {
	t.Helper()
	args = append([]string{
		"--address=127.0.0.1:0", "--enable-only=fake",
	}, args...)
	e := &exporter{Process: launch(t, exe, args...)}
	e.awaitAddress(t)
	return e
}

// ends wants the exporter, which was told to, to end well.
func (e *exporter) ends(t *testing.T) {
	t.Helper()
	if code := e.ExitCode(t); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// awaitAddress waits until the exporter says in its log where it serves.
func (e *exporter) awaitAddress(t *testing.T) {
	t.Helper()
	e.Await(t, "the address in the log", func() error {
		if m := servingLine.FindStringSubmatch(e.Output()); m != nil {
			e.url = m[1]
			return nil
		}
		return errors.New("not there yet")
	})
}

// runToEnd runs a command that ends by itself.
func runToEnd(t *testing.T, exe string, args ...string) (code int, output string) {
	t.Helper()
	p := launch(t, exe, args...)
	return p.ExitCode(t), p.Output()
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

// file writes a file into a directory of the test's own.
func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	write(t, path, text)
	return path
}

// write replaces a file as an editor does: a new file next to it, then renamed over it.
func write(t *testing.T, path, text string) {
	t.Helper()
	next := fmt.Sprintf("%s.%d", path, time.Now().UnixNano())
	must(t, os.WriteFile(next, []byte(text), 0o600))
	must(t, os.Rename(next, path))
}
