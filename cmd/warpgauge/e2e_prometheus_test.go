package main_test

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/programtest"
	"warpgauge/internal/testkit/programtest/prometheustest"
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
	prometheustest.Find(t)
	exe := build(t)
	var targets []*scrapeProxy
	for _, f := range formats {
		targets = append(targets, newScrapeProxy(t, f.accept))
	}
	server := prometheustest.Start(t, scraping(targets), "--enable-feature=native-histograms")
	// It begins to scrape some 5 s after it is ready.
	server.Await(t, "the first scrapes, of nothing yet", 3, `up == 0`)

	fault, spec := hang(t)
	e := serve(t, exe, "--collect-interval=100", "--sample-deadline=500ms", "--stale-after=2s",
		"-f", file(t, "counters.csv", histogramCSV), spec)
	for _, target := range targets {
		target.set(t, e.url)
	}
	begin := time.Now()
	server.Await(t, "the exporter up in every format", 3, `up == 1`)
	up := time.Now()
	server.Await(t, "8 GPUs in every format", 3, `count by (job) (DCGM_FI_DEV_GPU_TEMP) == 8`)
	server.Await(t, "histograms of all 8 GPUs", 3, `count by (job) (
		rate(DCGM_FI_DEV_GPU_UTIL_count{job!="protobuf"}[5m])
		or histogram_count(rate(DCGM_FI_DEV_GPU_UTIL{job="protobuf"}[5m]))) == 8`)
	t.Logf("8 GPUs queried back %v after the exporter started", time.Since(begin))

	fault.begin(t)
	server.Await(t, "the hung GPU to disappear while the others stay", 3, `count by (job) (DCGM_FI_DEV_GPU_TEMP) == 7`)
	t.Logf("hung GPU gone %v after it began to hang", time.Since(fault.begun))
	t.Run("Answers", func(t *testing.T) { testAnswers(t, server) })

	// Every scrape since the first succeeded, in every format.
	window := time.Since(up).Milliseconds()
	if got := server.Query(t, fmt.Sprintf(`min_over_time(up[%dms]) == 1`, window)); len(got) != 3 {
		t.Errorf("jobs of which every scrape succeeded: %v, want 3", got)
	}
	for i, f := range formats {
		if got, _ := targets[i].contentType.Load().(string); !strings.HasPrefix(got, f.contentType) {
			t.Errorf("job %s was answered with %q, want %q", f.job, got, f.contentType)
		}
	}
}

// testAnswers asks, while the GPU hangs, for what dashboards and alerts ask for.
func testAnswers(t *testing.T, server *prometheustest.Server) {
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
		t.Run(tt.what, func(t *testing.T) { server.Await(t, tt.what, 3, tt.query) })
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
		t.Run(tt.what, func(t *testing.T) { server.Await(t, tt.what, tt.jobs, tt.query) })
	}
}

// scraping is a configuration that scrapes each target in its format.
func scraping(targets []*scrapeProxy) string {
	var config strings.Builder
	// Every scrape must succeed, so the timeout must suit a slow machine; and it must
	// not be longer than the interval.
	config.WriteString("global: {scrape_interval: 5s, scrape_timeout: 5s}\nscrape_configs:\n")
	for i, f := range formats {
		fmt.Fprintf(&config, "- {job_name: %s, static_configs: [{targets: [%q]}]}\n", f.job, targets[i].address)
	}
	return config.String()
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
	must(t, err)
	p.target.Store(u)
}

// TestE2EPromtool lints the page of each simulated node. What the names of
// dcgm-exporter's contract make unavoidable is allowed; anything else, and any
// finding about our own metrics, is not.
func TestE2EPromtool(t *testing.T) {
	t.Parallel()
	promtool := programtest.Find(t, "promtool")
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
