package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/programtest/prometheustest"
	kubelet "warpgauge/pkg/kube/kubetest"
)

// emptyPanels have nothing to show on a node that is well, or in the first minute:
// their expressions must still be ones that Prometheus answers.
var emptyPanels = map[string]string{
	"fleet.json/Devices that are not well":                  "all are",
	"gpu.json/Clock events":                                 "only while clocks are held down",
	"gpu.json/XIDs in the window":                           "only after an XID",
	"gpu.json/NVLink errors":                                "recovery errors are told by some boards only",
	"exporter.json/Values out of range":                     "none are",
	"exporter.json/Collectors that are not in use, and why": "all are in use",
	"exporter.json/Children replaced":                       "none was",
	"exporter.json/Errors of mappings":                      "there are none",
	"exporter.json/CPU":                                     "simulated GPUs have no child process",
	"exporter.json/Memory":                                  "the same",
	"workloads.json/GPU-hours in the last hour":             "idle hours need half an hour",
}

// TestE2EDashboardsOwn asks real Prometheus servers what each panel and variable of
// dashboards/ asks for. Each scrapes a simulated node with pods and jobs, which has the
// names of one generation of DCGM or of both.
func TestE2EDashboardsOwn(t *testing.T) {
	prometheustest.Find(t)
	exe := build(t)
	list, err := filepath.Abs("../../etc/recommended-counters.csv")
	if err != nil {
		t.Fatal(err)
	}
	kube, jobs := kubelet.Start(t), t.TempDir()
	if err := os.WriteFile(filepath.Join(jobs, "5"), []byte("4711\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	rules, err := filepath.Abs("../../deploy/prometheus/rules/recording.yml")
	if err != nil {
		t.Fatal(err)
	}
	rules = fast(t, rules)
	servers := map[string]*prometheustest.Server{}
	for _, names := range []string{"as-written", "new", "both"} {
		e := serve(t, exe, withKubelet(kube.Socket(), "-f", list, "-c", "200", "--field-names="+names, "--kubernetes-virtual-gpus", "--process-values=false", "--hpc-job-mapping-dir="+jobs)...)
		var options []string
		switch names {
		case "as-written":
			uuids := e.uuids(t) // of each node: they are simulated
			kube.Set(pod("alone", uuids["0"]), pod("first", uuids["1"]+"::0"), pod("second", uuids["1"]+"::1"))
		case "both":
			options = []string{"--enable-feature=native-histograms"}
		}
		servers[names] = prometheustest.Start(t, fmt.Sprintf(`global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
- {job_name: warpgauge, honor_labels: true, static_configs: [{targets: [%q]}]}
`, rules, strings.TrimPrefix(e.url, "http://")), options...)
	}
	for names, server := range servers {
		server.Await(t, "the pods and the job, "+names, 4, `warpgauge_device_owner`)
		server.Await(t, "GPU-hours, "+names, 1, `namespace:gpu_hours:sum1h`)
	}

	files, err := filepath.Glob("../../dashboards/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("dashboards: %q, %v", files, err)
	}
	variables := strings.NewReplacer("$__rate_interval", "10s", "$instance", ".*", "$gpu", ".*", "$namespace", ".*", "$pod", ".*")
	for _, file := range files {
		var d struct {
			Panels []struct {
				Title   string
				Targets []struct{ Expr string }
			}
			Templating struct {
				List []struct {
					Type  string
					Query any
				}
			}
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatalf("parse %s: %v", file, err)
		}
		for _, p := range d.Panels {
			name := filepath.Base(file) + "/" + p.Title
			for _, target := range p.Targets {
				expr := variables.Replace(target.Expr)
				for names, server := range servers {
					// The lists come from no server here, and there is no warpgauge-fleet.
					if _, empty := emptyPanels[name]; empty || filepath.Base(file) == "lists.json" {
						server.Query(t, expr)
						continue
					}
					answers(t, server, name+", names "+names, expr)
				}
			}
		}
		for _, v := range d.Templating.List {
			if v.Type != "query" {
				continue
			}
			query, _ := v.Query.(map[string]any)["query"].(string)
			metric, label, ok := cutLast(strings.TrimSuffix(strings.TrimPrefix(query, "label_values("), ")"), ", ")
			if !ok {
				t.Fatalf("%s: variable %q", file, query)
			}
			for names, server := range servers {
				if values := labelsOf(t, server, label, variables.Replace(metric)); len(values) == 0 {
					t.Errorf("%s: the variable %s has no values, names %s", file, query, names)
				}
			}
		}
	}
}

// answers waits for data.
func answers(t *testing.T, s *prometheustest.Server, what, expr string) {
	t.Helper()
	eventually.OK(t, what, func() error {
		if len(s.Query(t, expr)) == 0 {
			return fmt.Errorf("no data for %s", expr)
		}
		return nil
	})
}

// fast is a copy of the rules without the intervals of their own, which a test
// cannot wait for.
func fast(t *testing.T, rules string) string {
	t.Helper()
	text, err := os.ReadFile(rules)
	if err != nil {
		t.Fatal(err)
	}
	lines := slices.DeleteFunc(strings.Split(string(text), "\n"), func(l string) bool { return strings.HasPrefix(l, "    interval:") })
	// The first whole minute with samples can be more than a minute away.
	return file(t, "rules.yml", strings.ReplaceAll(strings.Join(lines, "\n"), ":1m]", ":1s]"))
}

// cutLast cuts at the last separator.
func cutLast(s, sep string) (before, after string, found bool) {
	at := strings.LastIndex(s, sep)
	if at < 0 {
		return s, "", false
	}
	return s[:at], s[at+len(sep):], true
}

// labelsOf is what Grafana's label_values(metric, label) asks for.
func labelsOf(t *testing.T, s *prometheustest.Server, label, metric string) model.LabelValues {
	t.Helper()
	values, _, _, err := s.API.LabelValues(t.Context(), label, []string{metric}, time.Time{}, time.Time{})
	if err != nil {
		t.Fatalf("values of %s: %v", label, err)
	}
	return values
}
