package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"warpgauge/internal/testkit/programtest"
)

// TestQueriesOfLists runs the expressions of docs/remote.md over three nodes. One node runs a different list and
// refuses the server's.
func TestQueriesOfLists(t *testing.T) {
	promtool := programtest.Find(t, "promtool")
	want := [][]string{
		{`warpgauge_list_info{instance="c",job="g",hash="B",origin="f",revision="1"} 1`},
		{`warpgauge_list_info{instance="c",job="g",hash="B",origin="f",revision="1"} 1`},
		{`warpgauge_remote_config_status{instance="c",job="g",status="refused"} 1`},
		{`{hash="A",revision="1"} 2`, `{hash="B",revision="1"} 1`},
		{`{hash="A"} 100`, `{hash="B"} 300`},
	}
	var queries []string
	blocks(t, "promql", func(path, text string) {
		if path == "docs/remote.md" {
			queries = append(queries, strings.Split(strings.TrimSpace(text), "\n\n")...)
		}
	})
	if len(queries) != len(want) {
		t.Fatalf("docs/remote.md has %d queries, want %d", len(queries), len(want))
	}
	var b strings.Builder
	b.WriteString("tests:\n- interval: 1m\n  input_series:\n")
	series := func(name, labels string, v int) {
		fmt.Fprintf(&b, "  - {series: '%s{job=\"g\",%s}', values: '%d'}\n", name, labels, v)
	}
	for i, n := range []string{"A", "A", "B"} {
		instance := fmt.Sprintf("instance=%q", string(rune('a'+i)))
		series("warpgauge_list_info", instance+fmt.Sprintf(",hash=%q,origin=\"f\",revision=\"1\"", n), 1)
		series("warpgauge_list_applied_timestamp_seconds", instance, 100*(i+1))
		status := map[string]string{"A": "applied", "B": "refused"}[n]
		series("warpgauge_remote_config_status", instance+fmt.Sprintf(",status=%q", status), 1)
	}
	b.WriteString("  promql_expr_test:\n")
	for i, query := range queries {
		fmt.Fprintf(&b, "  - expr: '%s'\n    eval_time: 0m\n    exp_samples:\n", strings.ReplaceAll(query, "WANTED", "A"))
		for _, w := range want[i] {
			labels, value, _ := strings.Cut(w, " ")
			fmt.Fprintf(&b, "    - {labels: '%s', value: %s}\n", labels, value)
		}
	}
	path := filepath.Join(t.TempDir(), "queries.yml")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", path).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s\n%s", err, out, b.String())
	}
}
