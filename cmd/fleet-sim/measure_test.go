//go:build linux

package main

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"warpgauge/internal/testkit/programtest/prometheustest"
)

// The figures of docs/scale.md:
//
//	go test ./cmd/fleet-sim -run TestMeasure -measure=100 -measure-for=2m -v -timeout=1h
var (
	measure    = flag.Int("measure", 0, "nodes to measure a real Prometheus with; 0: not")
	measureFor = flag.Duration("measure-for", time.Minute, "how long, after a warm-up of half of it")
	scrape     = flag.String("measure-scrape", "5s", "scrape interval")
)

var configurations = []struct {
	name   string
	native bool // protobuf, with native histograms
	args   string
}{
	{"default", false, ""},
	{"default, protobuf", true, ""},
	{"default, all own metrics", false, "--exporter-metrics=full"},
	{"default, no own metrics", false, "--exporter-metrics=none"},
	{"default, a pod per GPU", false, "--pods-per-gpu=1"},
	{"default, 4 pods share each GPU", false, "--pods-per-gpu=4"},
	{"default, pods that live 5 minutes", false, "--pods-per-gpu=1 --pod-lifetime=5m"},
	{"default, A100 with 14 MIG instances", false, "--profiles=dgx-a100-mig"},
	{"recommended, classic histograms", false, "--counters=recommended-counters.csv"},
	{"recommended, native histograms", true, "--counters=recommended-counters.csv"},
	{"recommended, a pod per GPU, classic", false, "--counters=recommended-counters.csv --pods-per-gpu=1"},
	{"AMD's list, MI300X", false, "--profiles=mi300x --counters=amd-counters.csv"},
}

func TestMeasure(t *testing.T) {
	if *measure == 0 {
		t.Skip("measures only with -measure=NODES")
	}
	for _, c := range configurations {
		t.Run(c.name, func(t *testing.T) {
			before := live()
			address := simulate(t, append([]string{fmt.Sprintf("--nodes=%d", *measure), "--interval=5s"}, strings.Fields(c.args)...)...)
			p := startPrometheus(t, fmt.Sprintf(`http_sd_configs: [{url: "http://%s/targets"}]`, address), *scrape, c.native)
			empty := rss(t, p)
			p.AwaitValue(t, "nodes that are up", float64(*measure), `count(up == 1)`)
			time.Sleep(*measureFor / 2)
			from := now(t, p)
			time.Sleep(*measureFor)
			to := now(t, p)
			samples := to.samples - from.samples
			perScrape := p.Value(t, `avg(scrape_samples_scraped)`)
			t.Logf("RESULT | %s | page %.0f samples | head %.0f series/node, total %.0f | %s | Prometheus RSS %.0f MiB (empty %.0f), %.2f KiB/series | %.1f µs CPU/sample, %.0f samples/s | simulator %.2f MiB/node",
				c.name, perScrape, to.series/float64(*measure), to.series, sizes(t, address),
				to.rss/(1<<20), empty/(1<<20), (to.rss-empty)/1024/to.series,
				(to.cpu-from.cpu).Seconds()*1e6/samples, samples/to.at.Sub(from.at).Seconds(),
				float64(live()-before)/float64(*measure)/(1<<20))
		})
	}
}

// live is what is in use of this process' heap and stacks.
func live() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// sizes are the bytes of a node's page in each format, plain and by gzip.
func sizes(t *testing.T, address string) string {
	t.Helper()
	var out []string
	for _, f := range []struct{ name, accept string }{
		{"text", "text/plain;version=0.0.4"},
		{"OpenMetrics", "application/openmetrics-text;version=1.0.0"},
		{"protobuf", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"},
	} {
		var n [2]int64
		for i, encoding := range []string{"identity", "gzip"} {
			r, err := http.NewRequest(http.MethodGet, "http://"+address+"/node/sim-00000/metrics", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Accept", f.accept)
			r.Header.Set("Accept-Encoding", encoding) // set by us, so that the client does not unpack
			answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			n[i], err = io.Copy(io.Discard, answer.Body)
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
		}
		out = append(out, fmt.Sprintf("%s %d/%d", f.name, n[0], n[1]))
	}
	return strings.Join(out, ", ")
}

// reading is what a Prometheus has used so far.
type reading struct {
	at                   time.Time
	series, samples, rss float64
	cpu                  time.Duration
}

func now(t *testing.T, p *prometheustest.Server) reading {
	t.Helper()
	page, _ := get(t, p.URL+"/metrics")
	r := reading{at: time.Now(), rss: rss(t, p)}
	for name, to := range map[string]*float64{"prometheus_tsdb_head_series": &r.series, "prometheus_tsdb_head_samples_appended_total": &r.samples} {
		for _, m := range regexp.MustCompile(`(?m)^`+name+`(?:\{[^}]*\})? (\S+)$`).FindAllStringSubmatch(page, -1) {
			v, err := strconv.ParseFloat(m[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			*to += v // of floats, histograms and exemplars
		}
	}
	// Fields 14 and 15: utime and stime in ticks of 10 ms; the name before them has no blank.
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.Process.PID()), "stat"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range strings.Fields(string(stat))[13:15] {
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		r.cpu += time.Duration(n) * 10 * time.Millisecond
	}
	return r
}

func rss(t *testing.T, p *prometheustest.Server) float64 {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.Process.PID()), "status"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(text)
	if m == nil {
		t.Fatal("no VmRSS")
	}
	n, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	return n * 1024
}
