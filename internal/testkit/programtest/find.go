// Package programtest runs third-party programs in tests: it finds them, or reports what this machine lacks, and ends
// them with the test.
package programtest

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// require is the variable that lists, separated by commas, what must not be missing: a program, or another name that
// a test passes to Missing. CI lists everything that it installs.
const require = "WARPGAUGE_REQUIRE"

// Find returns a program's path. It calls Missing if $PATH does not have the program.
func Find(tb testing.TB, name string) string {
	tb.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Missing(tb, name, "%v", err)
	}
	return path
}

// Missing ends a test that needs something this machine lacks: it skips the test, in one line, or fails it if
// $WARPGAUGE_REQUIRE has the name. The format explains why it seems to be missing, or how to get it.
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
