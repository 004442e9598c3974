package exporter

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
		if d := cmp.Diff(tt.want, relax(a, tt.in, RootCommand(a).Flags)); d != "" {
			t.Errorf("%q (-want +got):\n%s", tt.in, d)
		}
	}
	slices.Sort(a.Unknown)
	if d := cmp.Diff([]string{"--xy", "--xy", "--xy=z"}, a.Unknown); d != "" {
		t.Errorf("unknown (-want +got):\n%s", d)
	}
	if code, out := run(t, "--xy", "version"); code != 1 || !strings.Contains(out, "unknown flag --xy") {
		t.Errorf("without the extension: exit code %d, %q", code, out)
	}
}
