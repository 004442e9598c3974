// Package prometheus_test checks the scrape configurations and rules with the real promtool, and that every name in
// them exists.
package prometheus_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"warpgauge/extensions/health"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/pages"
	"warpgauge/internal/testkit/programtest"
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
		if err := yaml.Unmarshal(read(t, f), &content); err != nil {
			t.Fatalf("parse %s: %v", f, err)
		}
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
	b, err := os.ReadFile(path)
	testkit.Must(t, err)
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
	known := map[string]bool{"up": true, "ALERTS": true}
	for _, name := range kubeStateMetrics {
		known[name] = true
	}
	lean := pages.Metrics(t, "../..")
	for name := range lean {
		known[name] = true
	}
	all := rules(t)
	for _, r := range all {
		known[r.Record] = true
	}
	for _, r := range all {
		for _, name := range metricNames(r.parsed) {
			if !known[name] && !pages.IsField(name) {
				t.Errorf("%v asks for %s, which neither the exporter nor a rule has", r, name)
			}
			if strings.HasPrefix(name, "warpgauge_") && !lean[name] {
				t.Errorf("%v asks for %s, which is only on the page with --exporter-metrics=full", r, name)
			}
		}
	}
}

// metricNames returns the metric names in an expression. A pattern must match two fields, one for each generation of DCGM.
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
		return []string{v.String()} // reported as unknown
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
		if !strings.Contains(runbooks, "\n## "+r.Alert+"\n") {
			t.Errorf("docs/runbooks.md has no chapter %q", r.Alert)
		}
		if !fires[r.Alert] {
			t.Errorf("no test lets %s fire", r.Alert)
		}
		if !slices.Contains([]string{"page", "ticket", "info"}, r.Labels["severity"]) {
			t.Errorf("%s: severity %q", r.Alert, r.Labels["severity"])
		}
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s lacks a summary or a description", r.Alert)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^## (\w+)$`).FindAllStringSubmatch(runbooks, -1) {
		if !names[m[1]] {
			t.Errorf("docs/runbooks.md has a chapter %q, and there is no such alert", m[1])
		}
	}
}

// TestRunbooksNameReasons: the runbooks and the verdicts have the same reasons and actions.
func TestRunbooksNameReasons(t *testing.T) {
	known := map[string]bool{}
	for _, r := range health.Table() {
		known[r.Name], known[string(r.Action)] = true, true
	}
	seen := 0
	for _, row := range regexp.MustCompile("(?m)^\\| ((?:`[a-z_0-9]+`(?:, )?)+) \\|").FindAllStringSubmatch(string(read(t, "../../docs/runbooks.md")), -1) {
		for name := range strings.SplitSeq(row[1], ", ") {
			if seen++; !known[strings.Trim(name, "`")] && !slices.Contains(mappings, strings.Trim(name, "`")) {
				t.Errorf("docs/runbooks.md has %s, which is no reason and no action", name)
			}
		}
	}
	if seen < 20 {
		t.Fatalf("%d reasons", seen)
	}
}

// mappings matches the rows of another table of the runbooks.
var mappings = []string{"pod_resources", "pod_metadata", "resource_slices", "hpc_jobs", "processes"}

// firing returns the alerts that some promtool test expects to fire.
func firing(t *testing.T) map[string]bool {
	t.Helper()
	files, err := filepath.Glob("tests/*_test.yml")
	testkit.Must(t, err)
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
		if err := yaml.Unmarshal(read(t, f), &file); err != nil {
			t.Fatalf("parse %s: %v", f, err)
		}
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
		if said[code] == "" {
			t.Errorf("the template does not know XID %s", code)
		}
	}
	for code := range said {
		if !seen[code] {
			t.Errorf("no alert or verdict is about XID %s", code)
		}
	}
}
