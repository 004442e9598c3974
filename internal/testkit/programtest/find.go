// Package programtest runs other people's programs in tests: it finds them, or says
// what this machine lacks, and runs them no longer than the test.
package programtest

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// require is the variable that lists, with commas, what must not be missing: a
// program, or anything else that a test names to Missing. CI lists all that it installs.
const require = "WARPGAUGE_REQUIRE"

// Find returns the path of a program, which is missing where $PATH has none.
func Find(tb testing.TB, name string) string {
	tb.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Missing(tb, name, "%v", err)
	}
	return path
}

// Missing ends a test that needs what this machine lacks: it skips the test, in one
// line, or fails it where $WARPGAUGE_REQUIRE has the name. The format says why it is
// thought to be missing, or how to get it.
func Missing(tb testing.TB, name, format string, args ...any) {
	tb.Helper()
	why := fmt.Sprintf(format, args...)
	if slices.Contains(strings.Split(os.Getenv(require), ","), name) {
		tb.Fatalf("%s is required by %s but missing: %s", name, require, why)
	}
	tb.Skipf("needs %s: %s", name, oneLine(why))
}

// oneLine joins the lines of a program's output.
func oneLine(text string) string {
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	return strings.Join(lines, "; ")
}
