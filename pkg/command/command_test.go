package command

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"warpgauge/pkg/config"
	"warpgauge/pkg/exporter"
)

// lenient is an extension that allows unknown flags, and nothing else.
type lenient struct{ exporter.Extension }

func (lenient) Flags(s *config.Set) { s.AllowUnknown() }

func newProgram(extensions ...exporter.Extension) *exporter.Program {
	return exporter.NewProgram(exporter.Streams{Out: io.Discard, Err: io.Discard}, nil, "", nil, extensions...)
}

// run runs a command in this process.
func run(t *testing.T, args ...string) (code int, output string) {
	t.Helper()
	var out bytes.Buffer
	a := exporter.NewProgram(exporter.Streams{Out: &out, Err: &out}, nil, "", nil)
	code = Run(t.Context(), a, append([]string{"warpgauge"}, args...))
	return code, out.String()
}

// TestRelaxed: unknown flags are left out, and what follows as their value.
func TestRelaxed(t *testing.T) {
	a := newProgram(lenient{})
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
		if d := cmp.Diff(tt.want, relax(a, tt.in, Root(a).Flags)); d != "" {
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
