package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxWords limits the words that people have written on all pages together: a page that grows must make room elsewhere.
// Generated pages and sections do not count.
const maxWords = 59_050

var made = regexp.MustCompile(`(?s)<!-- made: \w+ -->.*?<!-- end -->`)

// generated lists the pages of tables that go generate writes.
var generated = []string{
	"docs/amd-names.md", "docs/dcgm.md", "docs/fields.md", "docs/flags.md", "docs/health-rules.md", "docs/metrics.md", "docs/migration-names.md", "docs/nvml.md",
}

func TestWords(t *testing.T) {
	n := 0
	for path, text := range every(t) {
		if !slices.Contains(generated, path) {
			n += len(strings.Fields(made.ReplaceAllString(text, "")))
		}
	}
	t.Logf("%d words outside of generated pages", n)
	if n > maxWords {
		t.Errorf("%d words outside of generated pages, %d are the limit", n, maxWords)
	}
}

// TestFirstSuccess: a visitor reads at most 150 words of the README before a command that shows metrics, or the reason
// why there are none.
func TestFirstSuccess(t *testing.T) {
	all := every(t)
	before := func(path, mark string) int {
		text, _, ok := strings.Cut(all[path], mark)
		if !ok {
			t.Errorf("%s has no %q", path, mark)
		}
		return len(strings.Fields(text))
	}
	for visitor, steps := range map[string][][2]string{
		"five minutes":     {{"README.md", "curl -s http://127.0.0.1:9400/metrics"}},
		"moving 500 nodes": {{"README.md", "](docs/migration.md)"}, {"docs/migration.md", "    warpgauge once"}},
		"3 a.m.":           {{"README.md", "](docs/trouble.md)"}, {"docs/trouble.md", "    warpctl doctor"}},
		"workstation":      {{"README.md", "](docs/workstation.md)"}, {"docs/workstation.md", "once | grep"}},
		"documentation":    {{"docs/README.md", "](trouble.md)"}, {"docs/trouble.md", "    warpctl doctor"}},
	} {
		n := 0
		for _, s := range steps {
			n += before(s[0], s[1])
		}
		t.Logf("%s: %d words", visitor, n)
		if n > 150 {
			t.Errorf("%s: %d words before the first success", visitor, n)
		}
	}
}
