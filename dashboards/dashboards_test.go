// Package dashboards_test checks what Grafana would only show as an empty panel:
// expressions that do not parse, metrics that do not exist, panels that overlap.
package dashboards_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"warpgauge/pkg/field"
)

type dashboard struct {
	UID, Title string
	Panels     []struct {
		ID          int
		Type, Title string
		GridPos     struct{ X, Y, W, H int }
		Targets     []struct{ RefID, Expr string }
		FieldConfig struct{ Defaults struct{ Unit string } }
		Datasource  struct{ UID string }
	}
	Templating struct {
		List []struct {
			Name, Type string
			Query      any
		}
	}
}

func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob("*.json")
	if err != nil || len(files) != 6 {
		t.Fatalf("dashboards: %q, %v", files, err)
	}
	out := map[string]dashboard{}
	for _, f := range files {
		var d dashboard
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, &d); err != nil {
			t.Fatalf("parse %s: %v", f, err)
		}
		out[f] = d
	}
	return out
}

// variables as Grafana fills them in for "All".
var variables = strings.NewReplacer("$__rate_interval", "1m", "$instance", ".*", "$gpu", ".*", "$namespace", ".*", "$pod", ".*")

var ownMetric = regexp.MustCompile("(?m)^\\| `(warpgauge_[a-z_]+)`")

// fleetMetric finds those of warpgauge-fleet.
var fleetMetric = regexp.MustCompile("(?m)^\\| `(warpgauge_fleet_[a-z_]+)` \\|")

// known is every name that the exporter, warpgauge-fleet, a rule or the Go runtime has.
func known(t *testing.T) func(string) bool {
	t.Helper()
	names := map[string]bool{}
	page, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range ownMetric.FindAllSubmatch(page, -1) {
		names[string(m[1])] = true
	}
	page, err = os.ReadFile("../docs/fleet.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range fleetMetric.FindAllSubmatch(page, -1) {
		names[string(m[1])] = true
	}
	var rules struct {
		Groups []struct{ Rules []struct{ Record string } }
	}
	text, err := os.ReadFile("../deploy/prometheus/rules/recording.yml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &rules); err != nil {
		t.Fatal(err)
	}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			names[r.Record] = true
		}
	}
	return func(name string) bool {
		for _, suffix := range []string{"", "_bucket", "_sum", "_count"} {
			base, ok := strings.CutSuffix(name, suffix)
			if !ok {
				continue
			}
			if _, _, is := field.ByName(base); is || names[base] {
				return true
			}
		}
		return strings.HasPrefix(name, "process_")
	}
}

func TestExpressions(t *testing.T) {
	exists := known(t)
	for file, d := range dashboards(t) {
		for _, p := range d.Panels {
			if p.Type == "row" {
				continue
			}
			if len(p.Targets) == 0 {
				t.Errorf("%s: panel %q asks for nothing", file, p.Title)
			}
			if p.Datasource.UID != "${datasource}" {
				t.Errorf("%s: panel %q has the data source %q, not the one that is chosen", file, p.Title, p.Datasource.UID)
			}
			for _, target := range p.Targets {
				expr, err := parser.ParseExpr(variables.Replace(target.Expr))
				if err != nil {
					t.Errorf("%s: panel %q: %v in %s", file, p.Title, err, target.Expr)
					continue
				}
				parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
					if v, ok := n.(*parser.VectorSelector); ok && !exists(v.Name) {
						t.Errorf("%s: panel %q asks for %s, which nothing has", file, p.Title, v.Name)
					}
					return nil
				})
			}
		}
	}
}

// namesOf are the names of fields that a selector has: its own, or those of its pattern.
func namesOf(s *parser.VectorSelector) (names []string) {
	if s.Name != "" {
		return []string{s.Name}
	}
	for _, m := range s.LabelMatchers {
		if m.Name != "__name__" {
			continue
		}
		for _, d := range field.All() {
			for _, name := range append([]string{d.Name}, d.Aliases...) {
				if m.Matches(name) {
					names = append(names, name)
				}
			}
		}
	}
	return names
}

var labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)

func TestVariables(t *testing.T) {
	exists := known(t)
	for file, d := range dashboards(t) {
		have := map[string]bool{"datasource": true, "__rate_interval": true}
		for _, v := range d.Templating.List {
			have[v.Name] = true
			if v.Type != "query" {
				continue
			}
			query, _ := v.Query.(map[string]any)["query"].(string)
			m := labelValues.FindStringSubmatch(query)
			if m == nil {
				t.Errorf("%s: variable %s: %q", file, v.Name, query)
				continue
			}
			expr, err := parser.ParseExpr(variables.Replace(m[1]))
			if err != nil {
				t.Errorf("%s: variable %s: %v", file, v.Name, err)
			} else if s, ok := expr.(*parser.VectorSelector); !ok || len(namesOf(s)) == 0 || !exists(namesOf(s)[0]) {
				t.Errorf("%s: variable %s asks for %s, which nothing has", file, v.Name, m[1])
			}
		}
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				for _, m := range regexp.MustCompile(`\$([a-z_]\w*)`).FindAllStringSubmatch(target.Expr, -1) {
					if !have[m[1]] {
						t.Errorf("%s: panel %q uses $%s, which the dashboard has not", file, p.Title, m[1])
					}
				}
			}
		}
	}
}

func TestPanelsDoNotOverlap(t *testing.T) {
	uids := map[string]string{}
	for file, d := range dashboards(t) {
		if other, taken := uids[d.UID]; taken || d.UID == "" {
			t.Errorf("%s and %s have the uid %q", file, other, d.UID)
		}
		uids[d.UID] = file
		taken, ids := map[[2]int]string{}, map[int]bool{}
		for _, p := range d.Panels {
			if ids[p.ID] {
				t.Errorf("%s: two panels have the id %d", file, p.ID)
			}
			ids[p.ID] = true
			if p.Title == "" {
				t.Errorf("%s: panel %d has no title", file, p.ID)
			}
			g := p.GridPos
			if g.X+g.W > 24 || g.W == 0 || g.H == 0 {
				t.Errorf("%s: panel %q lies at %+v", file, p.Title, g)
			}
			for x := g.X; x < g.X+g.W; x++ {
				for y := g.Y; y < g.Y+g.H; y++ {
					if other, there := taken[[2]int{x, y}]; there {
						t.Fatalf("%s: panels %q and %q overlap", file, p.Title, other)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
		}
	}
}
