// Package prometheus_test checks the scrape configurations and rules with the real promtool, and that every name in
// them exists.
package prometheus_test

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"warpgauge/extensions/health"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/pages"
	"warpgauge/internal/testkit/programtest"
	"warpgauge/pkg/events"
	"warpgauge/pkg/field"
)

// rule is a rule of a file.
type rule struct {
	file                string
	Record, Alert, Expr string
	Annotations, Labels map[string]string
	parsed              parser.Expr
}

func (r rule) String() string { return r.file + ": " + r.Record + r.Alert }

// rules returns the rules of all files in the folder rules.
func rules(t *testing.T) (all []rule) {
	t.Helper()
	files, err := filepath.Glob("rules/*.yml")
	testkit.Must(t, err)
	for _, f := range files {
		var content struct{ Groups []struct{ Rules []rule } }
		testkit.Must(t, yaml.Unmarshal(read(t, f), &content))
		for _, g := range content.Groups {
			for _, r := range g.Rules {
				r.file = f
				if r.parsed, err = parser.NewParser(parser.Options{}).ParseExpr(r.Expr); err != nil {
					t.Fatalf("%v: %v", r, err)
				}
				all = append(all, r)
			}
		}
	}
	if len(all) < 20 {
		t.Fatalf("found %d rules only", len(all))
	}
	return all
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b := testkit.Get(os.ReadFile(path))(t)
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
	for verb, pattern := range map[string]string{"check": "rules/*.yml", "test": "tests/*.yml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %q, %v", pattern, files, err)
		}
		f(append([]string{verb, "rules"}, files...)...)
	}
	for _, config := range []string{"scrape/static.yml", "scrape/files.yml", "scrape/laptop.yml", "scale/sharded.yml"} {
		f("check", "config", config)
	}
	f("check", "config", "--agent", "scale/agent.yml")
	// Debian's build of Prometheus lacks Kubernetes service discovery.
	if out, err := exec.Command(promtool, "check", "config", "scrape/kubernetes.yml").CombinedOutput(); err != nil && !strings.Contains(string(out), "kubernetes_sd_configs not found") {
		t.Errorf("promtool check config scrape/kubernetes.yml: %v\n%s", err, out)
	}
}

// kubeStateMetrics lists metrics of https://github.com/kubernetes/kube-state-metrics, docs/metrics/workload.
var kubeStateMetrics = []string{
	"kube_deployment_spec_replicas", "kube_deployment_status_replicas_available",
	"kube_daemonset_status_desired_number_scheduled", "kube_daemonset_status_number_available", "kube_daemonset_status_updated_number_scheduled", "kube_pod_owner", "kube_pod_container_info",
}

// TestEveryMetricExists: an expression over an unknown name would be silent for ever.
func TestEveryMetricExists(t *testing.T) {
	known, lean, all := map[string]bool{"up": true, "ALERTS": true}, pages.Metrics(t, "../.."), rules(t)
	for _, name := range slices.Concat(kubeStateMetrics, slices.Collect(maps.Keys(lean))) {
		known[name] = true
	}
	for _, r := range all {
		known[r.Record] = true
	}
	for _, r := range all {
		for _, name := range metricNames(r.parsed) {
			testkit.ErrorIf(t, !known[name] && !pages.IsField(name), "%v asks for %s, which neither the exporter nor a rule has", r, name)
			testkit.ErrorIf(t, strings.HasPrefix(name, "warpgauge_") && !lean[name], "%v asks for %s, which is only on the page with --exporter-metrics=full", r, name)
		}
	}
}

// metricNames returns the metric names in an expression. A pattern must match two fields, one for each generation of DCGM.
func metricNames(expr parser.Expr) (names []string) {
	for _, matchers := range parser.ExtractSelectors(expr) {
		m := matchers[slices.IndexFunc(matchers, func(m *labels.Matcher) bool { return m.Name == "__name__" })]
		n := len(names)
		for _, d := range field.All() {
			if latest, _ := d.NewName(); m.Type != labels.MatchEqual && m.Matches(d.Name) && m.Matches(latest) {
				names = append(names, d.Name, latest)
			}
		}
		if len(names) != n+2 {
			names = append(names, m.Value) // a pattern is reported as unknown
		}
	}
	return names
}

// TestEveryAlertHasARunbookAndATest finds alerts without either.
func TestEveryAlertHasARunbookAndATest(t *testing.T) {
	runbooks := string(read(t, "../../docs/runbooks.md"))
	fires, names := firing(t), map[string]bool{}
	for _, r := range slices.DeleteFunc(rules(t), func(r rule) bool { return r.Alert == "" }) {
		names[r.Alert] = true
		if at, want := r.Annotations["runbook"]+r.Annotations["runbook_url"], "docs/runbooks.md#"+strings.ToLower(r.Alert); !strings.HasSuffix(at, want) {
			t.Errorf("%s: runbook is %q, want %q", r.Alert, at, want)
		}
		testkit.ErrorIf(t, !strings.Contains(runbooks, "\n## "+r.Alert+"\n"), "docs/runbooks.md has no chapter %q", r.Alert)
		testkit.ErrorIf(t, !fires[r.Alert], "no test lets %s fire", r.Alert)
		if !slices.Contains([]string{"page", "ticket", "info"}, r.Labels["severity"]) {
			t.Errorf("%s: severity %q", r.Alert, r.Labels["severity"])
		}
		testkit.ErrorIf(t, r.Annotations["summary"] == "" || r.Annotations["description"] == "", "%s lacks a summary or a description", r.Alert)
	}
	for _, m := range regexp.MustCompile(`(?m)^## (\w+)$`).FindAllStringSubmatch(runbooks, -1) {
		testkit.ErrorIf(t, !names[m[1]], "docs/runbooks.md has a chapter %q, and there is no such alert", m[1])
	}
}

// TestRunbooksNameReasons: the chapter of an alert names reasons of verdicts that fire it, each row those of one action, and links the
// page of all others.
func TestRunbooksNameReasons(t *testing.T) {
	text, page, all := string(read(t, "../../docs/runbooks.md")), string(read(t, "../../docs/health-rules.md")), rules(t)
	chapters, actions := map[string]string{}, map[string]events.Action{}
	for part := range strings.SplitSeq(text, "\n## ") {
		name, body, _ := strings.Cut(part, "\n")
		chapters[name] = body
	}
	delete(chapters, "WarpgaugeCollectorRestarts") // hung is a reason there as well
	for _, r := range health.Table() {
		var named []string
		for chapter, body := range chapters {
			if strings.Contains(body, "`"+r.Name+"`") {
				named = append(named, chapter)
			}
		}
		if fires := alertsOf(all, &r); len(named) > 0 && !slices.Equal(named, fires) {
			t.Errorf("docs/runbooks.md has %s in %q; %v %s fires %q", r.Name, named, r.State, r.Action, fires)
		} else if len(named) == 0 && len(fires) > 0 && !strings.Contains(chapters[fires[0]], "](health-rules.md)") || len(fires) > 1 {
			t.Errorf("%s fires %q, which neither names it nor links docs/health-rules.md", r.Name, fires)
		}
		testkit.Has(t, "docs/health-rules.md", page, fmt.Sprintf("\n| `%s` | %v | %s |", r.Name, r.State, r.Action))
		testkit.Has(t, "the chapter GPUFailed", chapters["GPUFailed"], fmt.Sprintf("\n| `%s` |", r.Action))
		actions[r.Name], actions[string(r.Action)] = r.Action, r.Action
	}
	rows := regexp.MustCompile("(?m)^\\| ((?:`[a-z_0-9]+`(?:, )?)+) \\|").FindAllStringSubmatch(text, -1)
	for _, row := range rows {
		names := strings.Split(strings.Trim(row[1], "`"), "`, `")
		for _, name := range names {
			if a := actions[name]; a == "" || a != actions[names[0]] {
				t.Errorf("docs/runbooks.md has %s, with action %q, in the row of %s", name, a, names[0])
			}
		}
	}
	testkit.Between(t, "rows", 20, 40, len(rows))
}

// alertsOf returns the alerts that fire on the verdict of a rule.
func alertsOf(all []rule, r *health.Rule) (names []string) {
	verdict := map[string]string{"__name__": "warpgauge_device_health", "state": r.State.String(), "reason": r.Name, "action": string(r.Action)}
	for _, a := range all {
		parser.Inspect(a.parsed, func(n parser.Node, _ []parser.Node) error { // without a range: verdicts that end it
			if m, ok := n.(*parser.MatrixSelector); ok && !slices.ContainsFunc(m.VectorSelector.(*parser.VectorSelector).LabelMatchers, func(m *labels.Matcher) bool { return !m.Matches(verdict[m.Name]) }) {
				names = append(names, a.Alert)
			}
			return nil
		})
	}
	return names
}

// TestAlertsKeepTheCluster: nodes of two clusters may have one name. Exporters may count for a kube-state-metrics without the label.
func TestAlertsKeepTheCluster(t *testing.T) {
	for _, r := range rules(t) {
		lost := 0
		parser.Inspect(r.parsed, func(n parser.Node, _ []parser.Node) error {
			if a, ok := n.(*parser.AggregateExpr); ok && slices.Contains(a.Grouping, "cluster") == a.Without {
				lost++
			}
			if b, ok := n.(*parser.BinaryExpr); ok && b.VectorMatching != nil && slices.Contains(b.VectorMatching.MatchingLabels, "cluster") != b.VectorMatching.On {
				lost++
			}
			return nil
		})
		testkit.Equal(t, r.String()+": operators that drop the cluster", map[string]int{"WarpgaugeGone": 3}[r.Alert], lost)
	}
}

// firing returns the alerts that some promtool test expects to fire.
func firing(t *testing.T) map[string]bool {
	t.Helper()
	files := testkit.Get(filepath.Glob("tests/*_test.yml"))(t)
	fires, name := map[string]bool{}, regexp.MustCompile(`alertname="(\w+)"`)
	for _, f := range files {
		var file struct {
			Tests []struct {
				Alerts []struct {
					Alertname string
					Firing    []any `yaml:"exp_alerts"`
				} `yaml:"alert_rule_test"`
				Exprs []struct {
					Samples []struct{ Labels string } `yaml:"exp_samples"`
				} `yaml:"promql_expr_test"`
			}
		}
		testkit.Must(t, yaml.Unmarshal(read(t, f), &file))
		for _, test := range file.Tests {
			for _, a := range test.Alerts {
				fires[a.Alertname] = fires[a.Alertname] || len(a.Firing) > 0
			}
			for _, e := range test.Exprs {
				for _, s := range e.Samples {
					if m := name.FindStringSubmatch(s.Labels); m != nil {
						fires[m[1]] = true
					}
				}
			}
		}
	}
	return fires
}

// xidCase matches a line of the template that explains a code.
var xidCase = regexp.MustCompile(`(?m)^\{\{- (?:else )?if eq \. "(\d+)" \}\}: (.*)$`)

// TestTheTemplateKnowsXIDs: messages use the exporter's own text for every code that an alert or a verdict names.
func TestTheTemplateKnowsXIDs(t *testing.T) {
	said := map[string]string{}
	for _, m := range xidCase.FindAllStringSubmatch(string(read(t, "../alertmanager/warpgauge.tmpl")), -1) {
		said[m[1]] = m[2]
		if n, err := strconv.Atoi(m[1]); err != nil || m[2] != field.XIDText(n) {
			t.Errorf("XID %s is %q in the template, %q in the exporter", m[1], m[2], field.XIDText(n))
		}
	}
	codes := regexp.MustCompile(`(?:xid|err_code)[=!]~"([0-9|]+)"`).FindAllStringSubmatch(string(read(t, "rules/alerts.yml")), -1)
	if len(codes) != 4 || codes[0][1] != codes[1][1] || codes[2][1] != codes[3][1] {
		t.Fatalf("lists of codes in the alerts: %q, want two, each twice", codes)
	}
	application, known := strings.Split(codes[0][1], "|"), strings.Split(codes[2][1], "|")
	seen := map[string]bool{}
	for _, x := range health.XIDs() {
		code := strconv.Itoa(x.Code)
		if x.Unit == "" && field.XIDText(x.Code) != field.XIDText(-1) && x.Resolution != "IGNORE" {
			seen[code] = true
		}
		ruled := slices.ContainsFunc(health.Table(), func(r health.Rule) bool { return strings.HasPrefix(r.Name+"_", "xid_"+code+"_") })
		program := x.Resolution == "RESTART_APP" || x.Resolution == "WORKFLOW_XID_45"
		if x.Unit == "" && (program != slices.Contains(application, code) || slices.Contains(known, code) != (ruled || program || x.Resolution == "IGNORE")) {
			t.Errorf("XID %s: %s has the wrong alert, or none", code, x.Resolution)
		}
	}
	for code := range seen {
		testkit.ErrorIf(t, said[code] == "", "the template does not know XID %s", code)
	}
	for code := range said {
		testkit.ErrorIf(t, !seen[code], "no alert or verdict is about XID %s", code)
	}
}
