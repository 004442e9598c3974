package main

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"warpgauge/pkg/config"
)

// TestRelaxed: with the environment of AMD's operator unknown flags are left out, and what
// follows as their value.
func TestRelaxed(t *testing.T) {
	a := &app{environ: []string{"AMD_EXPORTER_RELAXED_FLAGS_PARSING=true"}}
	a.addFlags()
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
		if d := cmp.Diff(tt.want, relax(a, tt.in, a.root().Flags)); d != "" {
			t.Errorf("%q (-want +got):\n%s", tt.in, d)
		}
	}
	slices.Sort(a.unknown)
	if d := cmp.Diff([]string{"--xy", "--xy", "--xy=z"}, a.unknown); d != "" {
		t.Errorf("unknown (-want +got):\n%s", d)
	}
	strict := &app{}
	strict.flags = config.NewSet(strict.lookup)
	if got := relax(strict, []string{"w", "--xy"}, strict.root().Flags); len(got) != 2 {
		t.Errorf("without the environment: %q", got)
	}
}
