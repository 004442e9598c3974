package pages

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"warpgauge/pkg/field" //nolint:depguard // the catalogue knows which names are fields

	"warpgauge/internal/testkit"
)

// ownMetric matches the metrics of the exporter and of warpgauge-fleet in tables of name, type and set.
var ownMetric = regexp.MustCompile("(?m)^\\| `(warpgauge_[a-z0-9_]+)` \\|(?: \\w+ \\| (\\w+))?")

// Metrics returns the metrics that docs/metrics.md and docs/fleet.md below root list, and whether each is served
// without --exporter-metrics=full.
func Metrics(t testing.TB, root string) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, page := range []string{"metrics.md", "fleet.md"} {
		text, err := os.ReadFile(filepath.Join(root, "docs", page))
		testkit.Must(t, err)
		for _, m := range ownMetric.FindAllStringSubmatch(string(text), -1) {
			out[m[1]] = page == "fleet.md" || m[2] == "lean"
		}
	}
	if len(out) < 10 {
		t.Fatalf("found %d metrics only", len(out))
	}
	return out
}

// IsField reports whether the catalogue has a series' field, or the field behind a histogram.
func IsField(series string) bool {
	return slices.ContainsFunc(Families(series), func(family string) bool {
		_, _, ok := field.ByName(family)
		return ok
	})
}

// Families returns the families to which a series may belong: its own name, or a histogram's.
func Families(series string) []string {
	out := []string{series}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if base, ok := strings.CutSuffix(series, suffix); ok {
			out = append(out, base)
		}
	}
	return out
}
