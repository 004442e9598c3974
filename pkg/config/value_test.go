package config

import (
	"regexp"
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

// A list that is refused leaves what was there; one that is taken reads back as
// itself, since a child process gets it as text.
func TestPatterns(t *testing.T) {
	var at []*regexp.Regexp
	p := patterns{&at}
	must(t, p.Set("^app$,x{1,2}"))
	if err := p.Set("fine,(bad"); err == nil {
		t.Error("an expression without its closing bracket is taken")
	}
	if got := p.String(); got != "^app$,x{1,2}" {
		t.Errorf("expressions are %q", got)
	}
	must(t, p.Set("more"))
	text := p.String()
	p.Reset()
	must(t, p.Set(text))
	if got := p.String(); got != text || len(at) != 3 {
		t.Errorf("%q reads back as %q, %d expressions", text, got, len(at))
	}
}

// An expression matches anywhere in the name, as in dcgm-exporter; without any, all
// labels are kept.
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
