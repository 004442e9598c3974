// Package scripttest runs tests under fake-amd-sysfs.sh: in a process that sees simulated AMD GPUs as the machine's, so
// that libraries with fixed paths read them, too.
package scripttest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"warpgauge/internal/testkit/programtest"
)

// inside is the variable that tells a test that it runs under the script. Its value is the expectation of the starting
// test.
const inside = "WARPGAUGE_TEST_UNDER_AMD_SCRIPT"

// Inside returns the argument of Run. It ends a test that Run did not start.
func Inside(t *testing.T) string {
	t.Helper()
	expect, ok := os.LookupEnv(inside)
	if !ok {
		t.Skip("runs under fake-amd-sysfs.sh only, started by another test")
	}
	return expect
}

// Script is the script, ready to run.
type Script struct{ path, writer string }

// New makes the script of the directory rocmtest ready. It ends the test in a
// process that Run has started, and where a mount namespace cannot be had.
func New(t *testing.T, rocmtest string) *Script {
	t.Helper()
	if _, ok := os.LookupEnv(inside); ok {
		t.Skip("this is the process that the script runs")
	}
	unshare := exec.CommandContext(t.Context(), programtest.Find(t, "unshare"), "--mount", "--propagation", "private", "true") //nolint:gosec // the system's
	if out, err := unshare.CombinedOutput(); err != nil {
		programtest.Missing(t, "unshare", "a mount namespace (run as root): %v: %s", err, out)
	}
	s := &Script{path: filepath.Join(rocmtest, "fake-amd-sysfs.sh"), writer: filepath.Join(t.TempDir(), "rocmfake")}
	// Once for all runs: the script would build it for each.
	build := exec.CommandContext(t.Context(), programtest.Find(t, "go"), "build", "-buildvcs=false", "-o", s.writer, ".") //nolint:gosec // ours
	build.Dir, build.Env = filepath.Join(rocmtest, "cmd/rocmfake"), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build rocmfake: %v\n%s", err, out)
	}
	return s
}

// Run runs one test of this binary under the script.
func (s *Script) Run(t *testing.T, test, expect string, options ...string) {
	t.Helper()
	args := append([]string{s.path}, options...)
	args = append(args, "--", os.Args[0], "-test.run", "^"+test+"$", "-test.v")
	cmd := exec.CommandContext(t.Context(), programtest.Find(t, "bash"), args...) //nolint:gosec // what the test says
	cmd.Env = append(os.Environ(), inside+"="+expect, "FAKE_AMD_WRITER="+s.writer)
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+test)) {
		t.Errorf("%v: %v\n%s", options, err, out)
	}
}
