// Package dashboards_test finds faults that Grafana would only show as an empty panel: expressions that do not parse,
// metrics that do not exist, panels that overlap.
package dashboards_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/pages"
	"warpgauge/internal/testkit/programtest"
	"warpgauge/pkg/field"
)

var must = testkit.Must

type dashboard struct {
	text       string // content of the file
	UID, Title string
	Panels     []struct {
		ID          int
		Type, Title string
		GridPos     struct{ X, Y, W, H int }
		Targets     []struct {
			RefID, Expr string
			Instant     bool
		}
		FieldConfig struct {
			Defaults struct{ Unit string }
		}
		Datasource struct{ UID string }
	}
	Annotations struct {
		List []struct{ Name, Expr, Step string }
	}
	Templating struct {
		List []struct {
			Name, Type string
			Query      any
		}
	}
}

// expressions returns the expressions of panels and annotations by title.
func (d dashboard) expressions() map[string]string {
	out := map[string]string{}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			out[fmt.Sprintf("panel %d, %q, %s", p.ID, p.Title, target.RefID)] = target.Expr
		}
	}
	for _, a := range d.Annotations.List {
		out["annotation "+a.Name] = a.Expr
	}
	return out
}

// variables returns the names of the dashboard's variables.
func (d dashboard) variables() map[string]bool {
	have := map[string]bool{}
	for _, v := range d.Templating.List {
		have[v.Name] = true
	}
	return have
}

func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob("*.json")
	if err != nil || len(files) != 7 {
		t.Fatalf("dashboards: %q, %v", files, err)
	}
	out := map[string]dashboard{}
	for _, f := range files {
		b := testkit.Get(os.ReadFile(f))(t)
		d := dashboard{text: string(b)}
		if err := json.Unmarshal(b, &d); err != nil {
			t.Fatalf("parse %s: %v", f, err)
		}
		out[f] = d
	}
	return out
}

// Variables with the values that Grafana uses for "All".
var variables = strings.NewReplacer("$__rate_interval", "1m", "$__range", "1h", "$step", "15s", "$cluster", ".*", "$job", ".*", "$model", ".*", "$instance", ".*", "$gpu", ".*", "$namespace", ".*", "$pod", ".*")

// known returns a function that reports whether the exporter, warpgauge-fleet, a rule or the Go runtime exports a name.
func known(t *testing.T) func(string) bool {
	t.Helper()
	names := map[string]bool{}
	for name := range pages.Metrics(t, "..") {
		names[name] = true
	}
	var rules struct {
		Groups []struct{ Rules []struct{ Record string } }
	}
	for _, file := range []string{"recording.yml", "recording-native.yml"} {
		text := testkit.Get(os.ReadFile("../deploy/prometheus/rules/" + file))(t)
		must(t, yaml.Unmarshal(text, &rules))
		for _, g := range rules.Groups {
			for _, r := range g.Rules {
				names[r.Record] = true
			}
		}
	}
	return func(name string) bool {
		return pages.IsField(name) || strings.HasPrefix(name, "process_") || slices.ContainsFunc(pages.Families(name), func(family string) bool { return names[family] })
	}
}

func TestExpressions(t *testing.T) {
	exists := known(t)
	for file, d := range dashboards(t) {
		for _, p := range d.Panels {
			if p.Type == "row" {
				continue
			}
			testkit.ErrorIf(t, len(p.Targets) == 0, "%s: panel %q asks for nothing", file, p.Title)
			testkit.ErrorIf(t, p.Type == "table" && p.FieldConfig.Defaults.Unit != "", "%s: table %q has a unit, which Grafana would give to the numbers of GPUs, too", file, p.Title)
			testkit.Equal(t, fmt.Sprintf("%s: data source of the panel %q, which is to be the one that is chosen", file, p.Title), "${datasource}", p.Datasource.UID)
			for _, target := range p.Targets { // topk selects different series at each step; topk by chooses one of equal ones
				testkit.ErrorIf(t, strings.Contains(target.Expr, "topk(") && !target.Instant, "%s: panel %q ranks over a range", file, p.Title)
			}
		}
		for what, text := range d.expressions() {
			expr, err := parser.NewParser(parser.Options{}).ParseExpr(variables.Replace(text))
			if err != nil {
				t.Errorf("%s: %s: %v in %s", file, what, err, text)
				continue
			}
			parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
				v, ok := n.(*parser.VectorSelector)
				testkit.ErrorIf(t, ok && !exists(v.Name), "%s: %s asks for what nothing has: %v", file, what, n)
				return nil
			})
		}
	}
}

// selectsField reports whether a selector's pattern of names matches a field.
func selectsField(s *parser.VectorSelector) bool {
	return slices.ContainsFunc(field.All(), func(d *field.Descriptor) bool {
		return slices.ContainsFunc(s.LabelMatchers, func(m *labels.Matcher) bool { return m.Name == "__name__" && m.Matches(d.Name) })
	})
}

var labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)

func TestVariables(t *testing.T) {
	exists := known(t)
	for file, d := range dashboards(t) {
		for _, v := range d.Templating.List {
			if v.Type != "query" {
				continue
			}
			query, _ := v.Query.(map[string]any)["query"].(string)
			m := labelValues.FindStringSubmatch(query)
			if m == nil {
				t.Errorf("%s: variable %s: %q", file, v.Name, query)
				continue
			}
			expr, err := parser.NewParser(parser.Options{}).ParseExpr(variables.Replace(m[1]))
			if err != nil {
				t.Errorf("%s: variable %s: %v", file, v.Name, err)
			} else if s, ok := expr.(*parser.VectorSelector); !ok || !exists(s.Name) && !selectsField(s) {
				t.Errorf("%s: variable %s asks for %s, which nothing has", file, v.Name, m[1])
			}
		}
		for what, expr := range d.expressions() {
			for _, m := range regexp.MustCompile(`\$([a-z_]\w*)`).FindAllStringSubmatch(expr, -1) {
				testkit.ErrorIf(t, !d.variables()[m[1]] && m[1] != "__rate_interval" && m[1] != "__range", "%s: %s uses $%s, which the dashboard has not", file, what, m[1])
			}
		}
	}
}

func TestPanelsDoNotOverlap(t *testing.T) {
	uids := map[string]string{}
	for file, d := range dashboards(t) {
		other, taken := uids[d.UID]
		testkit.ErrorIf(t, taken || d.UID == "", "%s and %s have the uid %q", file, other, d.UID)
		uids[d.UID] = file
		ids := map[int]bool{}
		for i, p := range d.Panels {
			testkit.ErrorIf(t, ids[p.ID] || p.Title == "", "%s: panel %d has an id of another one, or no title: %q", file, p.ID, p.Title)
			ids[p.ID] = true
			g := p.GridPos
			testkit.ErrorIf(t, g.X+g.W > 24 || g.W == 0 || g.H == 0, "%s: panel %q lies at %+v", file, p.Title, g)
			for _, other := range d.Panels[:i] {
				o := other.GridPos
				testkit.ErrorIf(t, g.X < o.X+o.W && o.X < g.X+g.W && g.Y < o.Y+o.H && o.Y < g.Y+g.H, "%s: panels %q and %q overlap", file, p.Title, other.Title)
			}
		}
	}
}

var dataLink = regexp.MustCompile(`"url": "/d/([\w-]*)\??([^"]*)"`)

// TestLinks: each link leads to an existing dashboard and passes variables that the dashboard has.
func TestLinks(t *testing.T) {
	all := dashboards(t)
	variablesOf, leads := map[string]map[string]bool{}, map[string]bool{}
	for _, d := range all {
		variablesOf[d.UID] = d.variables()
	}
	for file, d := range all {
		for _, l := range dataLink.FindAllStringSubmatch(d.text, -1) {
			have := variablesOf[l[1]]
			testkit.ErrorIf(t, have == nil, "%s: a link leads to %s, which is no dashboard", file, l[1])
			for _, m := range regexp.MustCompile(`(?:^|&)(?:var-(\w+)=|\$\{(\w+):queryparam\})`).FindAllStringSubmatch(l[2], -1) {
				testkit.ErrorIf(t, !have[m[1]+m[2]], "%s: a link hands over %s, which %s has not", file, m[1]+m[2], l[1])
			}
			leads[d.UID+" "+l[1]] = true
		}
	}
	for _, want := range []string{"warpgauge-fleet warpgauge-node", "warpgauge-node warpgauge-gpu"} {
		testkit.ErrorIf(t, !leads[want], "no link is %s", want)
	}
}

// promtoolTest runs a panel's or annotation's expressions by promtool, on series by selector.
type promtoolTest struct {
	all   map[string]dashboard
	tests []map[string]any
}

// ask wants the expressions that have what, after their titles, to return samples at a time: numbers by labels. An expression that
// counts returns their number.
func (p *promtoolTest) ask(t *testing.T, file, what, at string, want map[string]float64) {
	t.Helper()
	before := len(p.tests)
	for name, expr := range p.all[file].expressions() {
		if !strings.Contains(name+" "+expr, what) {
			continue
		}
		samples := []map[string]any{}
		for labels, v := range want {
			samples = append(samples, map[string]any{"labels": labels, "value": v})
		}
		if _, counted := want["{}"]; strings.HasPrefix(expr, "count(") && !counted {
			samples = []map[string]any{{"labels": "{}", "value": len(want)}}
		}
		p.tests = append(p.tests, map[string]any{"expr": variables.Replace(expr), "eval_time": at, "exp_samples": samples})
	}
	if len(p.tests) == before {
		t.Fatalf("%s has no %s", file, what)
	}
}

func (p *promtoolTest) run(t *testing.T, series map[string]string) {
	t.Helper()
	var input []map[string]string
	for selector, values := range series {
		input = append(input, map[string]string{"series": selector, "values": values})
	}
	file := testkit.Get(yaml.Marshal(map[string]any{"evaluation_interval": "1h",
		"tests": []any{map[string]any{"interval": "1m", "input_series": input, "promql_expr_test": p.tests}}}))(t)
	path := filepath.Join(t.TempDir(), "dashboards_test.yml")
	must(t, os.WriteFile(path, file, 0o600))
	if out, err := exec.Command(programtest.Find(t, "promtool"), "test", "rules", path).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestXIDsByPromtool: "XIDs in 24 h" means the same in each panel and leaves out old XIDs. Annotations mark the minute
// of an XID and of a driver change.
func TestXIDsByPromtool(t *testing.T) {
	p := promtoolTest{all: dashboards(t)}
	const gpu = `gpu="0", instance="n", UUID="GPU-1", modelName="m"`
	const fault, lost = `err_code="31", err_msg="fault"}`, `err_code="79", err_msg="lost"}`
	for _, file := range []string{"fleet.json", "gpu.json"} {
		p.ask(t, file, `"XIDs in 24 h"`, "10h", map[string]float64{`{` + gpu + `, ` + fault: 31})           // a Prometheus that has run for ten hours has no data of the day before
		p.ask(t, file, `"XIDs in 24 h"`, "30h", map[string]float64{`{` + gpu + `, ` + lost: 79})            // within the last 24 hours
		p.ask(t, file, `"XIDs in 24 h"`, "60h", nil)                                                        // 79 is still exported, but old
		p.ask(t, file, "annotation XIDs", "26h", map[string]float64{`{gpu="0", instance="n", ` + lost: 79}) // within this minute
		p.ask(t, file, "annotation XIDs", "26h2m", nil)
		p.ask(t, file, "annotation Driver changes", "26h", map[string]float64{`{instance="n", driver="560"}`: 1})
		p.ask(t, file, "annotation Driver changes", "26h2m", nil)
	}
	p.run(t, map[string]string{
		`DCGM_FI_DEV_XID_ERRORS{` + gpu + `, ` + fault:                    "31x1559 _x3000",
		`DCGM_FI_DEV_XID_ERRORS{` + gpu + `, ` + lost:                     "_x1560 79x3000",
		`DCGM_FI_DEV_GPU_TEMP{` + gpu + `, DCGM_FI_DRIVER_VERSION="550"}`: "40x1559 _x3000",
		`DCGM_FI_DEV_GPU_TEMP{` + gpu + `, DCGM_FI_DRIVER_VERSION="560"}`: "_x1560 40x3000",
	})
}

// TestTwoExportersByPromtool: a board, or one in MIG mode, that another exporter reports too, as another instance with
// another host name, counts once. Two nodes have a
// board with the same PCI address in place of a UUID, and a switch.
func TestTwoExportersByPromtool(t *testing.T) {
	p, series := promtoolTest{all: dashboards(t)}, map[string]string{}
	for _, exporter := range []string{`job="w", instance="n1", hostname="n1"`, `job="former", instance="10.0.0.1:9400", hostname="exporter-x"`} {
		for _, gpu := range []string{`, gpu="0", UUID="GPU-0", modelName="m"`, `, gpu="1", UUID="GPU-1", modelName="m", GPU_I_ID="1"`, `, gpu="1", UUID="GPU-1", modelName="m", GPU_I_ID="2"`} {
			series[`DCGM_FI_DEV_FB_USED{`+exporter+gpu+`}`], series[`DCGM_FI_DEV_FB_FREE{`+exporter+gpu+`}`] = "100x10", "300x10"
		}
		for _, gpu := range []string{`, gpu="0", UUID="GPU-0", modelName="m"`, `, gpu="1", UUID="GPU-1", modelName="m"`} {
			series[`DCGM_FI_DEV_GPU_TEMP{`+exporter+gpu+`}`], series[`DCGM_FI_DEV_POWER_USAGE{`+exporter+gpu+`}`] = "50x10", "300x10"
			series[`gpu:utilization:ratio{`+exporter+gpu+`}`] = "0x10"
			series[`DCGM_FI_DEV_XID_ERRORS{`+exporter+gpu+`, err_code="31", err_msg="fault"}`] = "31x10"
		}
		series[`warpgauge_device_health{`+exporter+`, gpu="0", device="GPU-0", state="failed"}`] = "1x10"
	}
	for _, node := range []string{"n2", "n3"} {
		gpu := `{job="w", instance="` + node + `", gpu="0", UUID="GPU-0000:03:00.0", modelName="m"}`
		series["DCGM_FI_DEV_FB_USED"+gpu], series["DCGM_FI_DEV_FB_FREE"+gpu], series["DCGM_FI_DEV_GPU_TEMP"+gpu] = "500x10", "500x10", "50x10"
		series["DCGM_FI_DEV_POWER_USAGE"+gpu], series["gpu:utilization:ratio"+gpu] = "100x10", "1x10"
		for _, device := range []string{`gpu="0", device="GPU-0000:03:00.0"`, `gpu="", device="nvswitch0"`} {
			series[`warpgauge_device_health{job="w", instance="`+node+`", state="failed", `+device+`}`] = "1x10"
		}
	}
	for panel, want := range map[string]map[string]float64{
		`"Memory in use"`: {`{modelName="m"}`: 0.40625}, `"GPUs"`: {"{}": 4}, `"Power"`: {"{}": 800}, `"Utilisation"`: {"{}": 0.5}, `"XIDs in 24 h", A count(`: {"{}": 2}, `"Failed"`: {"{}": 5},
	} {
		p.ask(t, "fleet.json", panel, "5m", want)
	}
	for panel, want := range map[string]float64{`"Memory in use"`: 1300, `"GPUs"`: 4, `"Power", A sum(`: 800, `"Utilisation", A avg(`: 0.5} {
		p.ask(t, "node.json", panel, "5m", map[string]float64{"{}": want})
	}
	p.run(t, series)
}

// TestAccountsByPromtool: panels count an owner from its beginning, even if it had ended by the first scrape, but only what it used within
// the range. A board that two exporters report counts once, also in shares. Two nodes have a board with the same PCI address.
func TestAccountsByPromtool(t *testing.T) {
	p, series := promtoolTest{all: dashboards(t)}, map[string]string{}
	for board, step := range map[string]string{`job="w", instance="n1", UUID="U0"`: "0+60", `job="former", instance="10.0.0.1:9400", UUID="U0"`: "0+30", `job="w", instance="n2", UUID="GPU-0000:03:00.0"`: "0+30", `job="w", instance="n3", UUID="GPU-0000:03:00.0"`: "0+30"} {
		owner := `owner="job", hpc_job="7"`
		if strings.Contains(board, "U0") {
			owner = `owner="pod", owner_namespace="ml", owner_pod="a", pod_uid="1"`
		}
		account := `{` + board + `, ` + owner
		series[`warpgauge_owner_energy_joules_total`+account+`, state="busy"}`], series[`warpgauge_owner_gpu_seconds_total`+account+`}`] = step+"x300", step+"x300"
		for _, activity := range []string{"compute", "waiting", "idle", "unknown"} {
			series[`warpgauge_owner_time_seconds_total`+account+`, activity="`+activity+`"}`] = step + "x300"
			if activity == "compute" && step == "0+30" {
				series[`warpgauge_owner_time_seconds_total`+account+`, activity="compute"}`] = "0+90x300" // more than the other exporter's
			}
		}
		series[`warpgauge_owner_busy_seconds_total`+account+`}`] = step + "x300"
	}
	series[`warpgauge_owner_energy_joules_total{job="w", instance="n1", UUID="U1", owner="pod", owner_namespace="ml", owner_pod="b", pod_uid="2", state="idle"}`] = "_x200 7200x10 stale"
	const a, b, job = `{owner_namespace="ml", owner_pod="a"}`, `{owner_namespace="ml", owner_pod="b"}`, `{hpc_job="7"}`
	p.ask(t, "accounts.json", `"Energy of owners"`, "4h", map[string]float64{"{}": 4})
	p.ask(t, "accounts.json", `"of it idle"`, "4h", map[string]float64{"{}": 2})
	p.ask(t, "accounts.json", `"Most energy"`, "4h", map[string]float64{a: 1, b: 2, job: 1})
	p.ask(t, "accounts.json", `"Most GPU-hours"`, "4h", map[string]float64{a: 1, job: 1})
	p.ask(t, "accounts.json", `"Busy"`, "4h", map[string]float64{a: 1.0 / 3, job: 0.2})
	want := map[string]float64{}
	for activity, parts := range map[string][2]float64{"compute": {90, 90}, "waiting": {60, 30}, "idle": {60, 30}, "unknown": {60, 30}} {
		want[`{owner_namespace="ml", owner_pod="a", activity="`+activity+`"}`], want[`{hpc_job="7", activity="`+activity+`"}`] = parts[0]/270, parts[1]/180
	}
	p.ask(t, "accounts.json", `"What each owner's time`, "4h", want)
	p.run(t, series)
}
