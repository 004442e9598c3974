package testkit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TempFile returns the path of a new file in a temporary directory.
func TempFile(tb testing.TB, name, content string) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), name)
	Must(tb, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// Environment holds a process's variables.
type Environment map[string]string

// Lookup returns a variable as os.LookupEnv does.
func (e Environment) Lookup(name string) (string, bool) {
	v, ok := e[name]
	return v, ok
}

// List returns the variables as os.Environ does.
func (e Environment) List() (out []string) {
	for name, value := range e {
		out = append(out, name+"="+value)
	}
	return out
}

// Outcome is the exit code and output of a program.
type Outcome struct {
	Code     int
	Out, Err string
}

// Want checks the exit code, and that the output has all texts.
func (o Outcome) Want(tb testing.TB, code int, texts ...string) {
	tb.Helper()
	if o.Code != code {
		tb.Errorf("exit code %d, want %d\noutput: %s\nerrors: %s", o.Code, code, o.Out, o.Err)
	}
	Has(tb, "output", o.Out+o.Err, texts...)
}

// WantHelp checks a help text of at most 100 columns.
func (o Outcome) WantHelp(tb testing.TB, texts ...string) {
	tb.Helper()
	o.Want(tb, 0, texts...)
	for line := range strings.Lines(o.Out) {
		if n := len([]rune(line)); n > 101 {
			tb.Errorf("line of %d columns: %q", n-1, line)
		}
	}
}
