package exporter

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/golden"
	"warpgauge/internal/testkit/programtest"
)

// figures matches what ARCHITECTURE.md says about the core.
var figures = regexp.MustCompile(`: (\d+) of our packages, (\d+) in all, ([\d.]+) MB stripped.* has (\d+) goroutines, and uses (\d+) MB of`)

// foreign lists the packages that extensions import and the core does not link.
var foreign = strings.Fields(`github.com/klauspost/compress/zstd github.com/open-telemetry/opamp-go/protobufs
	github.com/prometheus/client_golang/prometheus/promauto github.com/prometheus/client_golang/prometheus/promhttp
	github.com/prometheus/prometheus/tsdb/chunkenc google.golang.org/protobuf/types/known/emptypb k8s.io/client-go/dynamic`)

// TestCoreAlone builds the exporter without extensions. It links none of their packages or dependencies, serves the
// metrics of simulated GPUs under dcgm-exporter's names, and takes no more than ARCHITECTURE.md says, by at most a fifth.
func TestCoreAlone(t *testing.T) {
	text, err := os.ReadFile("../../ARCHITECTURE.md")
	must(t, err)
	said := figures.FindStringSubmatch(strings.ReplaceAll(string(text), "\n", " "))
	testkit.FatalIf(t, said == nil, "ARCHITECTURE.md has no text like %v", figures)
	measured := func(what string, figure int, got float64) {
		want, err := strconv.ParseFloat(said[figure], 64)
		if t.Logf("%s: %.4g, in ARCHITECTURE.md %v", what, got, want); err != nil || got > 1.2*want {
			t.Errorf("%s: %.4g, but ARCHITECTURE.md says %v", what, got, want)
		}
	}
	goList := func(args ...string) []string {
		out := testkit.Get(exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...).Output())(t)
		return slices.Compact(slices.Sorted(slices.Values(strings.Fields(string(out)))))
	}
	packages := goList("-deps", "./testdata/core")
	own := slices.DeleteFunc(slices.Clone(packages), func(p string) bool { return !strings.HasPrefix(p, "warpgauge/") })
	if i := slices.IndexFunc(own, func(p string) bool { return strings.HasPrefix(p, "warpgauge/extensions/") }); i >= 0 {
		t.Errorf("the core links %s", own[i])
	}
	only := slices.DeleteFunc(goList("-f", `{{join .Imports "\n"}}`, "../../extensions/..."), func(p string) bool {
		host, _, _ := strings.Cut(p, "/")
		return !strings.Contains(host, ".") || slices.Contains(packages, p)
	})
	testkit.Equal(t, "dependencies of extensions only", foreign, only)
	measured("our packages", 1, float64(len(own)))
	measured("packages", 2, float64(len(packages)))
	binary := filepath.Join(t.TempDir(), "core")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", binary, "./testdata/core")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	size := testkit.Get(os.Stat(binary))(t)
	measured("MB of the binary", 3, float64(size.Size())/1e6)
	if out, err := exec.CommandContext(t.Context(), binary, "fields", "GPU_TEMP").CombinedOutput(); err != nil {
		t.Errorf("fields: %v\n%s", err, out)
	}
	if out, err := exec.CommandContext(t.Context(), binary, "check", "--guard", tempFile(t, "list.csv", "DCGM_FI_DEV_GPU_TEMP, gauge, t\n")).CombinedOutput(); err == nil {
		t.Errorf("check --guard without a guard succeeds:\n%s", out)
	}

	begun := time.Now()
	p := programtest.Start(t, binary, []string{"--address=127.0.0.1:0", "--exporter-metrics=full"}, programtest.Options{Env: []string{"NODE_NAME=node-1"}})
	url, page := p.AwaitReady(t, "/readyz"), ""
	const samples = "warpgauge_sample_duration_seconds_count{" // each is a call into the simulated library
	scrapes := time.NewTicker(time.Second)                     // as Prometheus would, so that the exporter is idle otherwise
	defer scrapes.Stop()
	p.Await(t, "six ticks", func() error {
		<-scrapes.C
		_, page = get(t, url+"/metrics")
		if n := sum(page, samples); n < 6*8 || !strings.Contains(page, `DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="7",UUID="`) {
			return fmt.Errorf("%v samples in\n%s", n, page)
		}
		return nil
	})
	// Ticks are a second apart. A slow machine has fewer of them.
	calls, ticks := sum(page, samples), time.Since(begun).Seconds()+1
	testkit.ErrorIf(t, strings.Count(page, "\n"+samples) != 8 || calls > 8*ticks, "%v library calls for 8 GPUs within %v s", calls, ticks)
	wantContract(t, page)
	for path, want := range map[string]int{"/readyz": 200, "/health": 200, "/livez": 200, "/api/v1/devices": 404, "/gpumetrics": 404} {
		code, _ := get(t, url+path)
		testkit.ErrorIf(t, code != want, "%s: %d, want %d", path, code, want)
	}
	measured("goroutines", 4, sum(page, "go_goroutines "))
	measured("MB resident", 5, sum(page, "process_resident_memory_bytes ")/1e6)
	t.Logf("%.2f s of CPU since the start", sum(page, "process_cpu_seconds_total "))
}

// lastXID matches the labels with the last XID, which the simulation draws at random.
var lastXID = regexp.MustCompile(`err_code="[^"]*",err_msg="[^"]*"`)

// wantContract compares the page, without values and without the exporter's own metrics, with dcgm-exporter's contract:
// order of families, types, help texts, labels and their order.
func wantContract(t *testing.T, page string) {
	t.Helper()
	var b strings.Builder
	for line := range strings.Lines(page) {
		series, _, _ := strings.Cut(line, "} ")
		switch {
		case strings.HasPrefix(line, "# ") && strings.HasPrefix(strings.Fields(line)[2], "DCGM_"):
			b.WriteString(line)
		case strings.HasPrefix(line, "DCGM_"):
			b.WriteString(lastXID.ReplaceAllString(series, `err_code="XID",err_msg="TEXT"`) + "}\n")
		}
	}
	golden.Check(t, "testdata/core/contract.prom", b.String())
}

// sum adds up the values of the lines of a page with a prefix.
func sum(page, begin string) (out float64) {
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, begin) {
			v, _ := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:len(line)-1], 64) // pages have numbers
			out += v
		}
	}
	return out
}

// get returns status and body of an answer.
func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	must(t, err)
	defer resp.Body.Close()
	text := testkit.Get(io.ReadAll(resp.Body))(t)
	return resp.StatusCode, string(text)
}
