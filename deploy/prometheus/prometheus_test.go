// Package prometheus_test checks the scrape configurations and rules with the real
// promtool, and that what they speak of exists.
package prometheus_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"warpgauge/internal/testkit/programtest"
	"warpgauge/pkg/field"
)

type ruleFile struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Record, Alert, Expr string
			Annotations         map[string]string
			Labels              map[string]string
		}
	}
}

func rules(t *testing.T) (files []string, all map[string]ruleFile) {
	t.Helper()
	files, err := filepath.Glob("rules/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatalf("rule files: %v, %v", files, err)
	}
	all = map[string]ruleFile{}
	for _, f := range files {
		var r ruleFile
		if err := yaml.Unmarshal(read(t, f), &r); err != nil {
			t.Fatalf("parse %s: %v", f, err)
		}
		all[f] = r
	}
	return files, all
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRulesByPromtool(t *testing.T) {
	promtool := programtest.Find(t, "promtool")
	f := func(args ...string) {
		t.Helper()
		if out, err := exec.Command(promtool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	files, _ := rules(t)
	f(append([]string{"check", "rules"}, files...)...)
	tests, err := filepath.Glob("tests/*.yml")
	if err != nil || len(tests) == 0 {
		t.Fatalf("tests of rules: %v, %v", tests, err)
	}
	f(append([]string{"test", "rules"}, tests...)...)
	f("check", "config", "scrape/static.yml")
	f("check", "config", "scrape/files.yml")
	f("check", "config", "scrape/laptop.yml")
	// Debian's build of Prometheus has no discovery of Kubernetes.
	if out, err := exec.Command(promtool, "check", "config", "scrape/kubernetes.yml").CombinedOutput(); err != nil && !strings.Contains(string(out), "kubernetes_sd_configs not found") {
		t.Errorf("promtool check config scrape/kubernetes.yml: %v\n%s", err, out)
	}
}

// ownMetric finds the exporter's own metrics in the generated page.
var ownMetric = regexp.MustCompile("(?m)^\\| `(warpgauge_[a-z_]+)` \\| \\w+ \\| (\\w+)")

// TestEveryMetricExists: an expression over a name that nothing has is silent for ever.
func TestEveryMetricExists(t *testing.T) {
	known := map[string]bool{"up": true, "ALERTS": true}
	for _, m := range ownMetric.FindAllSubmatch(read(t, "../../docs/metrics.md"), -1) {
		known[string(m[1])] = true
		known[string(m[1])+" is lean"] = string(m[2]) == "lean"
	}
	files, all := rules(t)
	for _, f := range files {
		for _, g := range all[f].Groups {
			for _, r := range g.Rules {
				known[r.Record] = true
			}
		}
	}
	for _, f := range files {
		for _, g := range all[f].Groups {
			for _, r := range g.Rules {
				expr, err := parser.ParseExpr(r.Expr)
				if err != nil {
					t.Errorf("%s: %s%s: %v", f, r.Record, r.Alert, err)
					continue
				}
				for _, name := range metricNames(expr) {
					if !known[name] && !isField(name) {
						t.Errorf("%s: %s%s asks for %s, which neither the exporter nor a rule has", f, r.Record, r.Alert, name)
					}
					if strings.HasPrefix(name, "warpgauge_") && !known[name+" is lean"] {
						t.Errorf("%s: %s%s asks for %s, which is only on the page with --exporter-metrics=full", f, r.Record, r.Alert, name)
					}
				}
			}
		}
	}
}

// metricNames are the names that an expression has, and of a pattern the fields that it
// matches: two, as it is there for both generations of DCGM.
func metricNames(expr parser.Node) (names []string) {
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		v, ok := n.(*parser.VectorSelector)
		switch {
		case !ok:
		case v.Name != "":
			names = append(names, v.Name)
		default:
			names = append(names, matched(v)...)
		}
		return nil
	})
	return names
}

func matched(v *parser.VectorSelector) (names []string) {
	for _, m := range v.LabelMatchers {
		if m.Name != "__name__" {
			continue
		}
		for _, d := range field.All() {
			latest, _ := d.NewName()
			if m.Matches(d.Name) && m.Matches(latest) {
				names = append(names, d.Name, latest)
			}
		}
	}
	if len(names) != 2 {
		return []string{v.String()} // which nothing has
	}
	return names
}

// isField reports whether the catalogue has the field, or the field of which a
// histogram is made.
func isField(name string) bool {
	for _, suffix := range []string{"", "_bucket", "_sum", "_count"} {
		if base, ok := strings.CutSuffix(name, suffix); ok {
			if _, _, ok := field.ByName(base); ok {
				return true
			}
		}
	}
	return false
}

// TestJoins: what the README shows is what is tested.
func TestJoins(t *testing.T) {
	var tests struct {
		Tests []struct {
			Exprs []struct{ Expr string } `yaml:"promql_expr_test"`
		}
	}
	if err := yaml.Unmarshal(read(t, "tests/joins_test.yml"), &tests); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(read(t, "README.md"))), " ")
	seen := 0
	for _, test := range tests.Tests {
		for _, e := range test.Exprs {
			seen++
			if !strings.Contains(text, strings.Join(strings.Fields(e.Expr), " ")) {
				t.Errorf("README.md does not show %s", e.Expr)
			}
		}
	}
	if seen == 0 {
		t.Fatal("no joins")
	}
}

// TestEveryAlertHasARunbookAndATest: neither may be forgotten.
func TestEveryAlertHasARunbookAndATest(t *testing.T) {
	runbooks, tests := string(read(t, "../../docs/runbooks.md")), string(read(t, "tests/alerts_test.yml"))
	_, all := rules(t)
	seen := 0
	for _, file := range all {
		for _, g := range file.Groups {
			for _, r := range g.Rules {
				if r.Alert == "" {
					continue
				}
				seen++
				anchor := strings.ToLower(r.Alert)
				if want := "docs/runbooks.md#" + anchor; r.Annotations["runbook"] != want {
					t.Errorf("%s: runbook is %q, want %q", r.Alert, r.Annotations["runbook"], want)
				}
				if !strings.Contains(runbooks, "\n## "+r.Alert+"\n") {
					t.Errorf("docs/runbooks.md has no chapter %q", r.Alert)
				}
				if !strings.Contains(tests, `"`+r.Alert+`"`) {
					t.Errorf("no test lets %s fire", r.Alert)
				}
				if !slices.Contains([]string{"page", "ticket", "info"}, r.Labels["severity"]) {
					t.Errorf("%s: severity %q", r.Alert, r.Labels["severity"])
				}
				if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
					t.Errorf("%s lacks a summary or a description", r.Alert)
				}
			}
		}
	}
	if seen == 0 {
		t.Fatal("no alerts")
	}
}

// xidCase is a line of the template that says what a code means.
var xidCase = regexp.MustCompile(`(?m)^\{\{- (?:else )?if eq \. "(\d+)" \}\}: (.*)$`)

// TestTheTemplateKnowsXIDs: messages use the exporter's own words, for every code
// that an alert is about.
func TestTheTemplateKnowsXIDs(t *testing.T) {
	said := map[string]string{}
	for _, m := range xidCase.FindAllStringSubmatch(string(read(t, "../alertmanager/warpgauge.tmpl")), -1) {
		said[m[1]] = m[2]
	}
	codes := regexp.MustCompile(`(?:xid|err_code)=~"([0-9|]+)"`).FindAllStringSubmatch(string(read(t, "rules/alerts.yml")), -1)
	if len(codes) != 6 {
		t.Fatalf("%d lists of codes in the alerts, want two for each of three classes", len(codes))
	}
	classes := map[string]int{}
	for i, list := range codes {
		for code := range strings.SplitSeq(list[1], "|") {
			n := 0
			for _, c := range code {
				n = 10*n + int(c-'0')
			}
			if said[code] != field.XIDText(n) {
				t.Errorf("XID %s is %q in the template, %q in the exporter", code, said[code], field.XIDText(n))
			}
			if other, there := classes[code]; there && other != i/2 {
				t.Errorf("XID %s is in two classes", code)
			}
			classes[code] = i / 2
		}
		if i%2 == 1 && list[1] != codes[i-1][1] {
			t.Errorf("the two lists of a class differ: %s and %s", codes[i-1][1], list[1])
		}
	}
}
