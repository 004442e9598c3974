// Package victoriametrics checks the rules and dashboards with VictoriaMetrics' parser. make victoriametrics-test also
// runs the tests of the rules.
package victoriametrics

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/VictoriaMetrics/metricsql"
	"gopkg.in/yaml.v2"
)

const deploy = "../../../deploy/prometheus"

// nativeRules uses functions of native histograms, which VictoriaMetrics does not support.
const nativeRules = "recording-native.yml"

func files(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) == 0 {
		t.Fatalf("%s: %d files, %v", pattern, len(found), err)
	}
	return found
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return text
}

// rules returns the expressions of a rule file.
func rules(t *testing.T, path string) (all []string) {
	t.Helper()
	var f struct {
		Groups []struct{ Rules []struct{ Expr string } }
	}
	if err := yaml.Unmarshal(read(t, path), &f); err != nil {
		t.Fatalf("parse %s: %v", path, err)
	}
	for _, g := range f.Groups {
		for _, r := range g.Rules {
			all = append(all, r.Expr)
		}
	}
	if len(all) == 0 {
		t.Fatalf("%s has no rule", path)
	}
	return all
}

var (
	inRange  = regexp.MustCompile(`(\[|offset )\$\w+(:\$\w+)?`)
	variable = regexp.MustCompile(`\$\{?\w+(:\w+)?\}?`)
)

// panels returns the expressions of a dashboard's panels and annotations, with values for its variables.
func panels(t *testing.T, path string) map[string][]string {
	t.Helper()
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
		Annotations struct{ List []struct{ Name, Expr string } }
	}
	if err := json.Unmarshal(read(t, path), &d); err != nil {
		t.Fatalf("parse %s: %v", path, err)
	}
	all := map[string][]string{}
	add := func(title, expr string) {
		all[title] = append(all[title], variable.ReplaceAllString(inRange.ReplaceAllString(expr, "${1}1m"), ".*"))
	}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			add(p.Title, target.Expr)
		}
	}
	for _, a := range d.Annotations.List {
		add(a.Name, a.Expr)
	}
	return all
}

func TestExpressions(t *testing.T) {
	for _, path := range files(t, deploy+"/rules/*.yml") {
		for _, expr := range rules(t, path) {
			switch _, err := metricsql.Parse(expr); {
			case filepath.Base(path) != nativeRules && err != nil:
				t.Errorf("%s: %v", path, err)
			case filepath.Base(path) == nativeRules && strings.Contains(expr, "histogram_sum") && err == nil:
				t.Errorf("%s: %s is parsed: the file need not be separate", path, expr)
			}
		}
	}
	for _, path := range files(t, "../../../dashboards/*.json") {
		for title, exprs := range panels(t, path) {
			for _, expr := range exprs {
				if _, err := metricsql.Parse(expr); err != nil {
					t.Errorf("%s: panel %q: %v", path, title, err)
				}
			}
		}
	}
}

// TestNumbers runs promtool's tests of the rules with VictoriaMetrics' engine.
func TestNumbers(t *testing.T) {
	tool, dir := os.Getenv("VMALERT_TOOL"), t.TempDir()
	if tool == "" {
		t.Skip("make victoriametrics-test builds vmalert-tool")
	}
	must(t, os.CopyFS(filepath.Join(dir, "rules"), os.DirFS(deploy+"/rules")))
	other := strings.NewReplacer("promql_expr_test", "metricsql_expr_test", ", ../rules/"+nativeRules, "", "warpgauge-bursts-native, ", "")
	for _, path := range files(t, deploy+"/tests/*_test.yml") {
		test := filepath.Join(dir, "tests", filepath.Base(path))
		must(t, os.MkdirAll(filepath.Dir(test), 0o700))
		must(t, os.WriteFile(test, []byte(other.Replace(string(read(t, path)))), 0o600))
		cmd := exec.Command(tool, "unittest", "--disableAlertgroupLabel", "--files="+filepath.Base(test))
		cmd.Dir = filepath.Dir(test)
		if out, err := cmd.CombinedOutput(); err != nil {
			_, report, _ := strings.Cut(string(out), "Unit Testing:")
			t.Errorf("vmalert-tool unittest %s: %v\n%s", path, err, report)
		}
	}
}
