package exporter

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestCoreAlone builds the exporter without extensions. It links none of their packages or dependencies, and serves
// the metrics of simulated GPUs under dcgm-exporter's names.
func TestCoreAlone(t *testing.T) {
	deps, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "./testdata/core").Output()
	must(t, err)
	packages := strings.Fields(string(deps))
	own := 0
	for _, p := range packages {
		if strings.HasPrefix(p, "warpgauge/") {
			own++
		}
		for _, foreign := range []string{"warpgauge/extensions", "github.com/open-telemetry/opamp-go", "github.com/klauspost/compress/zstd", "github.com/prometheus/prometheus/tsdb", "charm.land", "github.com/gorilla/websocket"} {
			if p == foreign || strings.HasPrefix(p, foreign+"/") {
				t.Errorf("the core links %s", p)
			}
		}
	}
	binary := filepath.Join(t.TempDir(), "core")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", binary, "./testdata/core")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	size, err := os.Stat(binary)
	must(t, err)
	t.Logf("%d packages, %d of them ours, %d bytes", len(packages), own, size.Size())

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	run := exec.CommandContext(ctx, binary, "--address=127.0.0.1:0", "--exporter-metrics=full")
	run.Env = []string{"NODE_NAME=node-1"}
	stderr, err := run.StderrPipe()
	must(t, err)
	must(t, run.Start())
	defer func() { _ = run.Wait() }() // it was killed
	defer cancel()
	url := ""
	lines := bufio.NewScanner(stderr)
	for url == "" && lines.Scan() {
		if _, rest, ok := strings.Cut(lines.Text(), "serving http"); ok {
			url, _, _ = strings.Cut("http"+rest, " ")
		}
	}
	go func() { _, _ = io.Copy(io.Discard, stderr) }()         // it ends with the program
	const samples = "warpgauge_sample_duration_seconds_count{" // each is a call into the simulated library
	page := ""
	for !strings.Contains(page, `DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="7",UUID="`) || sum(page, samples) < 2*8 {
		time.Sleep(50 * time.Millisecond)
		if page, err = get(ctx, url); err != nil {
			t.Fatalf("%s: %v\n%s", url, err, page)
		}
	}
	wantContract(t, page)
	for path, code := range map[string]int{"readyz": 200, "health": 200, "livez": 200, "api/v1/devices": 404, "gpumetrics": 404} {
		if _, err := get(ctx, strings.Replace(url, "metrics", path, 1)); (err == nil) != (code == http.StatusOK) {
			t.Errorf("/%s: %v, want %d", path, err, code)
		}
	}
	calls, goroutines, resident := sum(page, samples), sum(page, "go_goroutines "), sum(page, "process_resident_memory_bytes ")
	t.Logf("idle: %v library calls for 8 GPUs so far, %v goroutines, %.1f MB resident", calls, goroutines, resident/1e6)
	if n := strings.Count(page, "\n"+samples); n != 8 || goroutines > 60 || resident > 80e6 {
		t.Errorf("at idle it does more than ARCHITECTURE.md says; it calls the library for %d sources", n)
	}
}

var update = flag.Bool("update", false, "write the golden page again")

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
	const path = "testdata/core/contract.prom"
	if *update {
		must(t, os.WriteFile(path, []byte(b.String()), 0o600))
	}
	want, err := os.ReadFile(path)
	must(t, err)
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(b.String(), "\n")); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
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

// get returns the answer of a URL.
func get(ctx context.Context, url string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer a.Body.Close()
	body, err := io.ReadAll(a.Body)
	if err == nil && a.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", a.StatusCode)
	}
	return string(body), err
}
