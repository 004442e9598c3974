package config

import (
	"fmt"
	"testing"

	"warpgauge/internal/testkit"
)

// An expression matches anywhere in the name, as in dcgm-exporter; without expressions all labels are kept.
func TestKeepLabel(t *testing.T) {
	f := func(list, name string, want bool) {
		t.Helper()
		k := &Kubernetes{}
		must(t, patterns{&k.LabelAllow}.Set(list))
		testkit.Equal(t, fmt.Sprintf("%q keeps %q", list, name), want, k.KeepLabel(name))
	}
	f("", "app", true)
	f("app", "app.kubernetes.io/name", true)
	f("app", "my-app", true)
	f("^app$", "my-app", false)
	f("^app$,team", "steam", true)
	f("x", "app", false)
}
