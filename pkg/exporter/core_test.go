package exporter

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestCoreAlone builds the exporter without extensions: it links none of their packages nor their dependencies, and
// serves the metrics of simulated GPUs under dcgm-exporter's names.
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
	run := exec.CommandContext(ctx, binary, "--address=127.0.0.1:0")
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
	go func() { _, _ = io.Copy(io.Discard, stderr) }() // it ends with the program
	want := `DCGM_FI_DEV_GPU_TEMP{gpu="7",UUID="`
	for page := ""; !strings.Contains(page, want); time.Sleep(50 * time.Millisecond) {
		if page, err = get(ctx, url); err != nil {
			t.Fatalf("%s: %v\n%s", url, err, page)
		}
	}
	for path, code := range map[string]int{"readyz": 200, "health": 200, "livez": 200, "api/v1/devices": 404, "gpumetrics": 404} {
		if _, err := get(ctx, strings.Replace(url, "metrics", path, 1)); (err == nil) != (code == http.StatusOK) {
			t.Errorf("/%s: %v, want %d", path, err, code)
		}
	}
}

// get returns what a URL answers.
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
