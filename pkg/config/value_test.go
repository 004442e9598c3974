package config

import "testing"

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
