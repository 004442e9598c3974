package fake

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestReadme parses the scripts in README.md and wants every name explained.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	scripts := 0
	for i, block := range strings.Split(string(text), "```") {
		if script, ok := strings.CutPrefix(block, "yaml\n"); ok && i%2 == 1 {
			scripts++
			spec, err := ParseSpec(strings.NewReader(script))
			if err != nil {
				t.Errorf("script in README.md: %v\n%s", err, script)
				continue
			}
			newWorld(t, Options{Spec: spec})
		}
	}
	if scripts == 0 {
		t.Error("README.md shows no script")
	}
	for _, name := range slices.Concat(Profiles(), Shapes(), faultKinds(), healthWatches()) {
		if !strings.Contains(string(text), name) {
			t.Errorf("README.md does not mention %q", name)
		}
	}
	for kind, keys := range faultKeys {
		row := tableRow(string(text), "| `"+string(kind)+"` |")
		for _, key := range strings.Fields(keys) {
			if key = strings.TrimSuffix(key, "!"); !slices.Contains([]string{"for", "device", "switch", "once"}, key) && !strings.Contains(row, "`"+key+"`") {
				t.Errorf("README.md: the row of fault %q does not mention its key %q: %q", kind, key, row)
			}
		}
	}
}

func tableRow(text, start string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, start) {
			return line
		}
	}
	return ""
}
