package config

import (
	"slices"
	"testing"
)

func TestSplitPatterns(t *testing.T) {
	f := func(in string, want ...string) {
		t.Helper()
		if got := splitPatterns(in); !slices.Equal(got, want) {
			t.Errorf("%q is split into %q, want %q", in, got, want)
		}
	}
	f("")
	f(" , ,")
	f("app", "app")
	f("^app$, team ,", "^app$", "team")
	f("a{1,2},b", "a{1,2}", "b")
	f("[,;]x,(a,b)", "[,;]x", "(a,b)")
	f(`a\,b,c`, `a\,b`, "c")
	f(`\[a,b`, `\[a`, "b")
	f("a},b,c", "a}", "b", "c")
	f(`a,\`, "a", `\`)
}

// An expression matches anywhere in the name, as in dcgm-exporter; without expressions all labels are kept.
func TestKeepLabel(t *testing.T) {
	f := func(list, name string, want bool) {
		t.Helper()
		k := &Kubernetes{}
		must(t, patterns{&k.LabelAllow}.Set(list))
		if got := k.KeepLabel(name); got != want {
			t.Errorf("%q keeps %q: %v, want %v", list, name, got, want)
		}
	}
	f("", "app", true)
	f("app", "app.kubernetes.io/name", true)
	f("app", "my-app", true)
	f("^app$", "my-app", false)
	f("^app$,team", "steam", true)
	f("x", "app", false)
}
