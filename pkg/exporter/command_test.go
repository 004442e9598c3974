package exporter

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/config"
)

// lenient is an extension that only allows unknown flags.
type lenient struct{ Extension }

func (lenient) Flags(s *config.Set) { s.AllowUnknown() }

// run runs a command in this process.
func run(t *testing.T, args ...string) (code int, output string) {
	t.Helper()
	var out bytes.Buffer
	a := NewProgram(Streams{Out: &out, Err: &out}, nil, "", nil)
	code = Run(t.Context(), a, append([]string{"warpgauge"}, args...))
	return code, out.String()
}

// TestRelaxed: the program ignores unknown flags and the values after them.
func TestRelaxed(t *testing.T) {
	a := NewProgram(Streams{Out: io.Discard, Err: io.Discard}, nil, "", nil, lenient{})
	for _, tt := range []struct{ in, want []string }{
		{[]string{"w"}, []string{"w"}},
		{[]string{"w", "--address=127.0.0.1"}, []string{"w", "--address=127.0.0.1"}},
		{[]string{"w", "-a", "127.0.0.1", "--xy"}, []string{"w", "-a", "127.0.0.1"}},
		{[]string{"w", "--xy", "y", "--debug", "-k"}, []string{"w", "--debug", "-k"}},
		{[]string{"w", "--xy=z", "--debug"}, []string{"w", "--debug"}},
		{[]string{"w", "--debug", "check", "--xy"}, []string{"w", "--debug", "check", "--xy"}}, // of a person
		{[]string{"w", "check", "--xy"}, []string{"w", "check", "--xy"}},
		{[]string{"w", "--", "--xy"}, []string{"w", "--", "--xy"}},
	} {
		testkit.Equal(t, fmt.Sprintf("%q", tt.in), tt.want, relax(a, tt.in, RootCommand(a).Flags))
	}
	slices.Sort(a.Unknown)
	testkit.Equal(t, "unknown", []string{"--xy", "--xy", "--xy=z"}, a.Unknown)
	code, out := run(t, "--xy", "version")
	testkit.ErrorIf(t, code != 1 || !strings.Contains(out, "unknown flag --xy"), "without the extension: exit code %d, %q", code, out)
}
