package nvmltest

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// childVariable names the test that a process was started for.
const childVariable = "WARPGAUGE_NVMLTEST_TEST"

// OwnProcess runs the calling test in a separate process, for a library other than the one that this process is bound
// to. It is the test's first call:
//
//	if nvmltest.OwnProcess(t) {
//		return
//	}
//
// In the parent it returns true after the child has ended, and the test has the child's output and result. In the
// child it returns false.
func OwnProcess(t *testing.T) (done bool) {
	t.Helper()
	if os.Getenv(childVariable) == t.Name() {
		return false
	}
	t.Parallel() // the parent only waits
	parts := strings.Split(t.Name(), "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	args := []string{"-test.run=" + strings.Join(parts, "/"), "-test.count=1", "-test.v=true"}
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...) //nolint:gosec // this test binary
	cmd.Env = append(os.Environ(), childVariable+"="+t.Name())
	out, err := cmd.CombinedOutput()
	switch {
	case err != nil:
		t.Fatalf("in a separate process: %v\n%s", err, out)
	case strings.Contains(string(out), "--- SKIP: "+t.Name()):
		t.Skipf("in a separate process:\n%s", out)
	case !strings.Contains(string(out), "--- PASS: "+t.Name()):
		t.Fatalf("the separate process did not run the test:\n%s", out)
	}
	return true
}
