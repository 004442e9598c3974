package main_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"warpgauge/pkg/eventually"
)

// The three ways in which the server scrapes the exporter, as jobs.
var formats = []struct{ job, accept, contentType string }{
	{"text", acceptText, "text/plain"},
	{"openmetrics", acceptOpenMetrics, "application/openmetrics-text"},
	{"protobuf", "", "application/vnd.google.protobuf"}, // what the server asks for by itself
}

// TestE2EPrometheus lets a real Prometheus scrape the exporter in each format,
// with a GPU that hangs in the end, and asks it what it saw.
func TestE2EPrometheus(t *testing.T) {
	t.Parallel()
	prometheus := program(t, "prometheus")
	exe := build(t)
	var targets []*scrapeProxy
	for _, f := range formats {
		targets = append(targets, newScrapeProxy(t, f.accept))
	}
	server := startPrometheus(t, prometheus, targets)
	// It begins to scrape some 5 s after it is ready.
	server.await(t, "the first scrapes, of nothing yet", 3, `up == 0`)

	fault, spec := hang(t)
	e := serve(t, exe, "--collect-interval=100", "--sample-deadline=500ms", "--stale-after=2s",
		"-f", file(t, "counters.csv", histogramCSV), spec)
	for _, target := range targets {
		target.set(t, e.url)
	}
	begin := time.Now()
	server.await(t, "the exporter up in every format", 3, `up == 1`)
	up := time.Now()
	server.await(t, "8 GPUs in every format", 3, `count by (job) (DCGM_FI_DEV_GPU_TEMP) == 8`)
	server.await(t, "histograms of all 8 GPUs", 3, `count by (job) (
		rate(DCGM_FI_DEV_GPU_UTIL_count{job!="protobuf"}[5m])
		or histogram_count(rate(DCGM_FI_DEV_GPU_UTIL{job="protobuf"}[5m]))) == 8`)
	t.Logf("8 GPUs queried back %v after the exporter started", time.Since(begin))

	fault.begin(t)
	server.await(t, "the hung GPU to disappear while the others stay", 3, `count by (job) (DCGM_FI_DEV_GPU_TEMP) == 7`)
	t.Logf("hung GPU gone %v after it began to hang", time.Since(fault.begun))
	t.Run("Answers", func(t *testing.T) { testAnswers(t, server) })

	// Every scrape since the first succeeded, in every format.
	window := time.Since(up).Milliseconds()
	if got := server.query(t, fmt.Sprintf(`min_over_time(up[%dms]) == 1`, window)); len(got) != 3 {
		t.Errorf("jobs of which every scrape succeeded: %v, want 3", got)
	}
	for i, f := range formats {
		if got, _ := targets[i].contentType.Load().(string); !strings.HasPrefix(got, f.contentType) {
			t.Errorf("job %s was answered with %q, want %q", f.job, got, f.contentType)
		}
	}
}

// testAnswers asks, while the GPU hangs, for what dashboards and alerts ask for.
func testAnswers(t *testing.T, server *prometheusServer) {
	// Each query says, per job, whether what it is about holds. others leaves the
	// hung GPU out where a range reaches back to before it hung.
	const others = `gpu!="` + hungGPU + `"`
	for _, tt := range []struct{ what, query string }{
		{"no series of the hung GPU is left",
			`count by (job) (up) unless count by (job) ({__name__=~"DCGM_.*", gpu="` + hungGPU + `"})`},
		{"the state of the hung GPU is stalled", `warpgauge_device_state{gpu="` + hungGPU + `", state="stalled"} == 1`},
		{"the other seven have three new energy readings within 30 s",
			`count by (job) (changes(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{` + others + `}[30s]) >= 3) == 7`},
		{"their samples are fresh", `max by (job) (warpgauge_sample_age_seconds{` + others + `, gpu!=""}) < 2`},
		{"the counter keeps its name and grows", `count by (job) (rate(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{` + others + `}[30s]) > 0) == 7`},
		{"no counter was renamed", `count by (job) (up) unless count by (job) ({__name__=~"DCGM_.*_total"})`},
		{"values are those of a GPU", `count by (job) (DCGM_FI_DEV_GPU_TEMP > 10 and DCGM_FI_DEV_GPU_TEMP < 100) == 7`},
		{"the sum of memory is constant", `count by (job) (stddev_over_time((DCGM_FI_DEV_FB_USED{` + others + `} + DCGM_FI_DEV_FB_FREE)[30s:1s]) == 0) == 7`},
		{"the dashboard's query has a legend per GPU", `count by (job) (sum by (job, gpu) (DCGM_FI_DEV_POWER_USAGE{gpu=~".*"})) == 7`},
	} {
		t.Run(tt.what, func(t *testing.T) { server.await(t, tt.what, 3, tt.query) })
	}
	for _, tt := range []struct {
		what, query string
		jobs        int
	}{
		{"classic quantiles", `count by (job) (histogram_quantile(0.9, rate(DCGM_FI_DEV_GPU_UTIL_bucket{` + others + `}[30s])) <= 100) == 7`, 2},
		{"native quantiles", `count by (job) (histogram_quantile(0.9, rate(DCGM_FI_DEV_GPU_UTIL{job="protobuf", ` + others + `}[30s])) <= 110) == 7`, 1},
		{"classic counts far above the rate of scrapes", `count by (job) (rate(DCGM_FI_DEV_GPU_UTIL_count{` + others + `}[30s]) > 2) == 7`, 2},
		{"native counts far above the rate of scrapes", `count by (job) (histogram_count(rate(DCGM_FI_DEV_GPU_UTIL{job="protobuf", ` + others + `}[30s])) > 2) == 7`, 1},
	} {
		t.Run(tt.what, func(t *testing.T) { server.await(t, tt.what, tt.jobs, tt.query) })
	}
}

// prometheusServer is a Prometheus on loopback with storage of the test's own.
type prometheusServer struct {
	*process
	url    string
	client *http.Client
}

func startPrometheus(t *testing.T, exe string, targets []*scrapeProxy) *prometheusServer {
	t.Helper()
	var config strings.Builder
	// Every scrape must succeed, so the timeout must suit a slow machine; and it must
	// not be longer than the interval.
	config.WriteString("global: {scrape_interval: 2s, scrape_timeout: 2s}\nscrape_configs:\n")
	for i, f := range formats {
		fmt.Fprintf(&config, "- {job_name: %s, static_configs: [{targets: [%q]}]}\n", f.job, targets[i].address)
	}
	return startPrometheusWith(t, exe, config.String(), "--enable-feature=native-histograms")
}

// startPrometheusWith runs Prometheus with a configuration, and more flags.
func startPrometheusWith(t *testing.T, exe, config string, more ...string) *prometheusServer {
	t.Helper()
	dir := t.TempDir()
	s := &prometheusServer{client: newClient(t)}
	s.process = launch(t, exe, append([]string{
		"--config.file=" + file(t, "prometheus.yml", config),
		"--storage.tsdb.path=" + filepath.Join(dir, "data"),
		"--web.listen-address=127.0.0.1:0",
		"--web.console.libraries=" + dir, "--web.console.templates=" + dir,
		"--log.level=warn",
	}, more...)...)
	eventually.OK(t, "Prometheus to be ready", func() error {
		select {
		case <-s.done:
			t.Fatalf("Prometheus ended:\n%s", s.log.String())
		default:
		}
		address, err := s.listens()
		if err != nil {
			return err
		}
		s.url = "http://" + address
		a, err := try(t.Context(), s.client, http.MethodGet, s.url+"/-/ready")
		if err == nil && a.code != http.StatusOK {
			err = fmt.Errorf("status %d", a.code)
		}
		return err
	})
	return s
}

// listens returns the address on loopback that the process listens on. A port
// chosen before it starts could be somebody else's by then.
func (p *process) listens() (address string, err error) {
	open := openFiles(p.pid())
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", p.pid()))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(table)) {
		// sl local_address rem_address st … uid timeout inode; 0A is LISTEN
		f := strings.Fields(line)
		if len(f) < 10 || f[3] != "0A" || !slices.Contains(open, "socket:["+f[9]+"]") {
			continue
		}
		var ip, port int
		if _, err := fmt.Sscanf(f[1], "%x:%x", &ip, &port); err != nil {
			return "", fmt.Errorf("read %q: %w", line, err)
		}
		return fmt.Sprintf("127.0.0.1:%d", port), nil
	}
	return "", errors.New("it does not listen yet")
}

// query returns the values of an instant query by the text of their labels.
func (s *prometheusServer) query(t *testing.T, expr string) map[string]string {
	t.Helper()
	a := get(t, s.client, s.url+"/api/v1/query?query="+url.QueryEscape(expr))
	var reply struct {
		Status, Error string
		Data          struct {
			Result []struct {
				Metric model.Metric
				Value  [2]any
			}
		}
	}
	if err := json.Unmarshal(a.body, &reply); err != nil || reply.Status != "success" {
		t.Fatalf("query %s: status %d: %s %v", expr, a.code, reply.Error, err)
	}
	out := map[string]string{}
	for _, r := range reply.Data.Result {
		out[r.Metric.String()] = fmt.Sprint(r.Value[1])
	}
	return out
}

// await polls until the query has n results.
func (s *prometheusServer) await(t *testing.T, what string, n int, expr string) {
	t.Helper()
	eventually.OK(t, what, func() error {
		if got := s.query(t, expr); len(got) != n {
			return fmt.Errorf("%s: %d results, want %d: %v", expr, len(got), n, got)
		}
		return nil
	})
}

// scrapeProxy passes scrapes on to an exporter that may start later, and can
// fix the Accept header, since Prometheus 2.42 has no setting for it.
type scrapeProxy struct {
	address     string
	target      atomic.Pointer[url.URL]
	contentType atomic.Value // string: of the last answer
}

func newScrapeProxy(t *testing.T, accept string) *scrapeProxy {
	t.Helper()
	p := &scrapeProxy{}
	reverse := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(p.target.Load())
			if accept != "" {
				r.Out.Header.Set("Accept", accept)
			}
		},
		ModifyResponse: func(r *http.Response) error {
			p.contentType.Store(r.Header.Get("Content-Type"))
			return nil
		},
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.target.Load() == nil {
			http.Error(w, "no exporter yet", http.StatusServiceUnavailable)
			return
		}
		reverse.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	p.address = srv.Listener.Addr().String()
	return p
}

func (p *scrapeProxy) set(t *testing.T, target string) {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	p.target.Store(u)
}

// TestE2EPromtool lints the page of each simulated node. What the names of
// dcgm-exporter's contract make unavoidable is allowed; anything else, and any
// finding about our own metrics, is not.
func TestE2EPromtool(t *testing.T) {
	t.Parallel()
	promtool := program(t, "promtool")
	exe := build(t)
	for _, profile := range []string{"dgx-h100", "dgx-a100-mig", "gb200", "mi300x", "rtx4090"} {
		t.Run(profile, func(t *testing.T) {
			t.Parallel()
			e := serve(t, exe, "--fake-profile="+profile)
			var body []byte
			eventually.OK(t, "a page with GPUs", func() error {
				body = get(t, newClient(t), e.url+"/metrics", "Accept", acceptText).body
				if !strings.Contains(string(body), "\nDCGM_FI_DEV_GPU_TEMP{") {
					return fmt.Errorf("no temperature on a page of %d bytes", len(body))
				}
				return nil
			})
			out, err := pipe(t, body, promtool, "check", "metrics")
			if err != nil && !strings.HasPrefix(err.Error(), "exit status 3") { // 3: findings
				t.Fatalf("promtool check metrics: %v\n%s", err, out)
			}
			for lines := bufio.NewScanner(strings.NewReader(out)); lines.Scan(); {
				if !allowedFinding(lines.Text()) {
					t.Errorf("promtool: %s", lines.Text())
				}
			}
		})
	}
}

// allowedFinding knows the consequences of the contract: the label modelName,
// counters without _total, and one name.
func allowedFinding(line string) bool {
	return isDCGM(line) && (strings.HasSuffix(line, "label names should be written in 'snake_case' not 'camelCase'") ||
		strings.HasSuffix(line, `counter metrics should have "_total" suffix`)) ||
		line == "DCGM_FI_DEV_PCIE_REPLAY_COUNTER metric name should not include type 'counter'"
}
