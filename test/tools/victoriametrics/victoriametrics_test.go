// Package victoriametrics holds the rules and dashboards against VictoriaMetrics: its parser,
// and with make victoriametrics-test its programs.
package victoriametrics

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metricsql"
	"gopkg.in/yaml.v2"
)

const deploy = "../../../deploy/prometheus"

// nativeRules has functions of native histograms, which VictoriaMetrics does not know.
const nativeRules = "recording-native.yml"

func files(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) == 0 {
		t.Fatalf("%s: %d files, %v", pattern, len(found), err)
	}
	return found
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// rules are the expressions of a file of rules.
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
	inRange  = regexp.MustCompile(`\[\$\w+`)
	variable = regexp.MustCompile(`\$\{?\w+(:\w+)?\}?`)
)

// panels are the expressions of a dashboard's panels and annotations, with values for its variables.
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
		all[title] = append(all[title], variable.ReplaceAllString(inRange.ReplaceAllString(expr, "[1m"), ".*"))
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

// program is one of those that make victoriametrics-test has built.
func program(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("VICTORIAMETRICS_PROGRAMS")
	if dir == "" {
		t.Skip("make victoriametrics-test builds the programs")
	}
	return filepath.Join(dir, name)
}

// TestNumbers runs promtool's tests of the rules with VictoriaMetrics' engine.
func TestNumbers(t *testing.T) {
	tool, dir := program(t, "vmalert-tool"), t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "rules"), os.DirFS(deploy+"/rules")); err != nil {
		t.Fatal(err)
	}
	other := strings.NewReplacer("promql_expr_test", "metricsql_expr_test", ", ../rules/"+nativeRules, "", "warpgauge-bursts-native, ", "")
	for _, path := range files(t, deploy+"/tests/*_test.yml") {
		test := filepath.Join(dir, "tests", filepath.Base(path))
		if err := os.MkdirAll(filepath.Dir(test), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(test, []byte(other.Replace(string(read(t, path)))), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(tool, "unittest", "--disableAlertgroupLabel", "--files="+filepath.Base(test))
		cmd.Dir = filepath.Dir(test)
		if out, err := cmd.CombinedOutput(); err != nil {
			_, report, _ := strings.Cut(string(out), "Unit Testing:")
			t.Errorf("vmalert-tool unittest %s: %v\n%s", path, err, report)
		}
	}
}

// start runs a program until the test ends and returns the URL on loopback that it logs.
func start(t *testing.T, address *regexp.Regexp, name string, args ...string) (url string) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is killed
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	eventually(t, name+" to listen", func() error {
		text, err := os.ReadFile(log.Name())
		select {
		case <-ended:
			t.Fatalf("%s has ended:\n%s", name, text)
		default:
		}
		if m := address.FindSubmatch(text); m != nil {
			url = string(m[1])
			return nil
		}
		return errors.Join(fmt.Errorf("its log:\n%s", text), err)
	})
	return url
}

func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Second) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s: %v", what, err)
		}
	}
}

// query returns how many series an expression has.
func query(server, expr string) (int, error) {
	r, err := (&http.Client{Timeout: 10 * time.Second}).Get(server + "/api/v1/query?nocache=1&query=" + url.QueryEscape(expr))
	if err != nil {
		return 0, err
	}
	defer func() { _ = r.Body.Close() }()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, err
	}
	var answer struct {
		Data struct{ Result []json.RawMessage }
	}
	if r.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("query %s: %s: %s", expr, r.Status, body)
	}
	err = json.Unmarshal(body, &answer)
	return len(answer.Data.Result), err
}

var (
	exporterURL = regexp.MustCompile(`serving (http://[^/]+)/metrics`)
	serverURL   = regexp.MustCompile(`started server at (http://[^/]+)/`)
	interval    = regexp.MustCompile(`(?m)^    interval: .*$`)
)

// TestSingleServer scrapes a simulated node with MIG instances, has vmalert record the rules and
// asks what each panel asks for.
func TestSingleServer(t *testing.T) {
	server, vmalert, exporter, dir := program(t, "victoria-metrics"), program(t, "vmalert"), os.Getenv("WARPGAUGE_BINARY"), t.TempDir()
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	jobs := filepath.Join(dir, "jobs")
	for _, err := range []error{os.Mkdir(jobs, 0o700), os.WriteFile(filepath.Join(jobs, "5"), []byte("4711\n"), 0o600)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	page := start(t, exporterURL, exporter, "--address=127.0.0.1:0", "--fake-profile=dgx-a100-mig", "--enable-only=fake", "-f", "../../../etc/recommended-counters.csv", "-c", "200", "--hpc-job-mapping-dir="+jobs)
	config := write("scrape.yml", fmt.Appendf(nil, "scrape_configs:\n- {job_name: warpgauge, honor_labels: true, scrape_interval: 1s, static_configs: [{targets: [%q]}]}\n", strings.TrimPrefix(page, "http://")))
	at := start(t, serverURL, server, "-storageDataPath="+filepath.Join(dir, "data"), "-httpListenAddr=127.0.0.1:0", "-promscrape.config="+config, "-search.latencyOffset=0s")
	await := func(expr string, want int) {
		t.Helper()
		eventually(t, expr, func() error {
			n, err := query(at, expr)
			if err == nil && n != want {
				err = fmt.Errorf("%d series, want %d", n, want)
			}
			return err
		})
	}
	// For ten seconds the server remembers which series there are none of.
	await(`warpgauge_instance_share_ratio`, 14)
	args := []string{"-httpListenAddr=127.0.0.1:0", "-datasource.url=" + at, "-remoteWrite.url=" + at, "-remoteWrite.flushInterval=1s", "-notifier.blackhole", "-rule.evalDelay=0s"}
	for _, path := range files(t, deploy+"/rules/*.yml") {
		if name := filepath.Base(path); name != nativeRules {
			args = append(args, "-rule="+write(name, interval.ReplaceAll(read(t, path), []byte("    interval: 1s"))))
		}
	}
	start(t, serverURL, vmalert, args...)
	for expr, want := range map[string]int{
		`count(gpu:utilization:ratio{GPU_I_ID=""}) == 8`:  1, // 4 of them divided
		`gpu:utilization:ratio{GPU_I_ID!=""}`:             14,
		`hpc_job:gpus_allocated:sum{hpc_job="4711"} == 1`: 1,
		`gpu:utilization:ratio_p99_5m{gpu="4"}`:           1,
	} {
		await(expr, want)
	}
	for _, path := range files(t, "../../../dashboards/*.json") {
		for title, exprs := range panels(t, path) {
			for _, expr := range exprs {
				if _, err := query(at, expr); err != nil {
					t.Errorf("%s: panel %q: %v", path, title, err)
				}
			}
		}
	}
}
