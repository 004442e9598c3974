package main

import (
	"io"
	"slices"
	"testing"

	"warpgauge/pkg/exporter"

	"github.com/google/go-cmp/cmp"
)

// TestRelaxed: with the environment of AMD's operator unknown flags are left out, and what
// follows as their value.
func TestRelaxed(t *testing.T) {
	a := newProgram(exporter.Streams{Err: io.Discard}, []string{"AMD_EXPORTER_RELAXED_FLAGS_PARSING=true"})
	for _, tt := range []struct{ in, want []string }{
		{[]string{"w"}, []string{"w"}},
		{[]string{"w", "--bind=127.0.0.1"}, []string{"w", "--bind=127.0.0.1"}},
		{[]string{"w", "-bind", "127.0.0.1", "--xy"}, []string{"w", "-bind", "127.0.0.1"}},
		{[]string{"w", "--xy", "y", "--debug", "-k"}, []string{"w", "--debug", "-k"}},
		{[]string{"w", "--xy=z", "--monitor-gpu"}, []string{"w", "--monitor-gpu"}},
		{[]string{"w", "--debug", "devices", "--xy"}, []string{"w", "--debug", "devices", "--xy"}}, // of a person
		{[]string{"w", "devices", "--xy"}, []string{"w", "devices", "--xy"}},
		{[]string{"w", "--", "--xy"}, []string{"w", "--", "--xy"}},
	} {
		if d := cmp.Diff(tt.want, relax(a, tt.in, newRoot(a).Flags)); d != "" {
			t.Errorf("%q (-want +got):\n%s", tt.in, d)
		}
	}
	slices.Sort(a.Unknown)
	if d := cmp.Diff([]string{"--xy", "--xy", "--xy=z"}, a.Unknown); d != "" {
		t.Errorf("unknown (-want +got):\n%s", d)
	}
	strict := newProgram(exporter.Streams{Err: io.Discard}, nil)
	if got := relax(strict, []string{"w", "--xy"}, newRoot(strict).Flags); len(got) != 2 {
		t.Errorf("without the environment: %q", got)
	}
}
