package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/programtest"
)

var must = testkit.Must

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// simulate runs the program until the test ends and returns its address.
func simulate(t *testing.T, args ...string) (address string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var out programtest.Output
	ended := make(chan error, 1)
	go func() {
		ended <- command(ctx, append([]string{"--address=127.0.0.1:0", "--interval=100ms"}, args...), &out)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("fleet-sim ended with %v", err)
		}
	})
	said := regexp.MustCompile(`on http://([^/]+)/`)
	eventually.OK(t, "the address", func() error {
		m := said.FindStringSubmatch(out.String())
		if m == nil {
			return fmt.Errorf("said %q", out.String())
		}
		address = m[1]
		return nil
	})
	return address
}

func get(t *testing.T, url string) (text string, code int) {
	t.Helper()
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get(url)
	must(t, err)
	defer r.Body.Close()
	body := testkit.Get(io.ReadAll(r.Body))(t)
	return string(body), r.StatusCode
}

// values returns a label's values in the series of a metric.
func values(page, metric, label string) (out []string) {
	series := regexp.MustCompile(`(?m)^` + metric + `\{.*?\b` + label + `="([^"]*)"`)
	for _, m := range series.FindAllStringSubmatch(page, -1) {
		out = append(out, m[1])
	}
	return out
}

// TestEveryNodeIsItsOwn checks that each node has its own host name, GPUs and pods, and is marked as simulated.
func TestEveryNodeIsItsOwn(t *testing.T) {
	address := simulate(t, "--nodes=3", "--profiles=dgx-h100,dgx-a100-mig", "--pods-per-gpu=2")
	body, _ := get(t, "http://"+address+"/targets")
	var targets []target
	if err := json.Unmarshal([]byte(body), &targets); err != nil || len(targets) != 3 {
		t.Fatalf("targets %s: %v", body, err)
	}
	seen := map[string]bool{}
	for i, target := range targets {
		devices := []int{8, 4 + 14, 8}[i] // whole GPUs and instances
		var page string
		eventually.OK(t, "page of all GPUs, with two pods each", func() error {
			page, _ = get(t, "http://"+target.Targets[0]+target.Labels["__metrics_path__"])
			if got := values(page, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "pod"); len(got) != 2*devices {
				return fmt.Errorf("%d series with pods, want %d", len(got), 2*devices)
			}
			return nil
		})
		hosts := values(page, "DCGM_FI_DEV_GPU_TEMP", "hostname")
		if slices.Sort(hosts); len(slices.Compact(hosts)) != 1 || hosts[0] != target.Labels["instance"] {
			t.Errorf("hostnames %q on the page of %q", hosts, target.Labels["instance"])
		}
		for _, id := range slices.Concat(slices.Compact(values(page, "DCGM_FI_DEV_GPU_TEMP", "UUID")), hosts[:1]) {
			if seen[id] {
				t.Errorf("%s is on two nodes", id)
			}
			seen[id] = true
		}
		for _, model := range values(page, "DCGM_FI_DEV_GPU_TEMP", "modelName") {
			if !strings.HasSuffix(model, "(simulated)") {
				t.Errorf("model %q does not say that it is simulated", model)
			}
		}
	}
	if _, code := get(t, "http://"+address+"/node/sim-00009/metrics"); code != http.StatusNotFound {
		t.Errorf("a node that is not there answers %d", code)
	}
}

func TestBadUse(t *testing.T) {
	for args, want := range map[string]string{
		"--nodes=0":                  "--nodes is 0",
		"--nodes=20001":              "from 1 to 20000",
		"--pods-per-gpu=65":          "--pods-per-gpu is 65",
		"--pod-lifetime=1ms":         "--pod-lifetime is 1ms",
		"--interval=1ms":             "--interval is 1ms",
		"--profiles=dgx-h100,abacus": "abacus",
		"--counters=nothing.csv":     "there are 1.x-compatibility-metrics.csv",
		"--spec=/nonexistent":        "read --spec",
		"--address=203.0.113.1:9500": "listen",
		"--nodes=1 and more":         `unexpected argument "and"`,
	} {
		all := append([]string{"--address=127.0.0.1:0"}, strings.Fields(args)...)
		err := command(t.Context(), all, io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", args, err, want)
		}
	}
}
