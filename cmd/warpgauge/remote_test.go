package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"warpgauge/pkg/exporter"

	"go.uber.org/zap"

	"warpgauge/extensions/remote"
	"warpgauge/pkg/lists"
)

const (
	csvA = "DCGM_FI_DEV_GPU_TEMP, gauge, t\n"
	csvB = csvA + "DCGM_FI_DEV_POWER_USAGE, gauge, p\n"
)

// TestTheGuardCountsEnough: on every simulated node each shipped list makes no more series than the
// guard has said before, and not many times less.
func TestTheGuardCountsEnough(t *testing.T) {
	shipped, err := filepath.Glob("../../etc/*.csv")
	must(t, err)
	for _, profile := range []string{"dgx-h100", "dgx-a100-mig", "gb200", "mi300x", "rtx4090"} {
		for _, path := range shipped {
			text, err := os.ReadFile(path)
			must(t, err)
			synctest.Test(t, func(t *testing.T) {
				most, made := guarded(t, text, "--fake-profile="+profile)
				if made > most || made*20 < most || made == 0 && most > 0 {
					t.Errorf("%s, %s: %d series, the guard has said %d", profile, path, made, most)
				}
			})
		}
	}
}

// guarded offers a list to an exporter of simulated GPUs, which reports what its guard says of it, and puts the list into
// service. It returns how many series the guard has announced and how many there are; 0 of names that no device has.
func guarded(t *testing.T, list []byte, args ...string) (most, made int) {
	t.Helper()
	a, cfg := wanted(t, simulated(append(args, "--isolation=none", "--remote-config=report", "--remote-url=http://lists", "--remote-allow=profiling,changing-labels",
		"--exporter-metrics=none", "--history-age=0", "-f", tempFile(t, "counters.csv", csvA))...)...)
	files := a.NewFiles(cfg, "", nil)
	first, err := files.First(t.Context(), zap.NewNop())
	must(t, err)
	p, err := a.NewPipeline(cfg, first.Fields, zap.NewNop())
	must(t, err)
	p.ServeLists(first, files)
	desk, e := p.Core().Lists, extension[*remote.Extension](a)
	_, _, err = e.Start(p.Core())
	must(t, err)
	p.AddPages()
	handler := p.NewServer().Handler()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- exporter.RunStages(ctx, zap.NewNop(), p.Stages()...) }()
	defer func() { cancel(); must(t, <-done) }()
	p.Engine.AwaitOpened(t.Context())

	out := e.Remote().Deliver(ctx, &lists.Offer{Revision: "r", Content: list})
	if strings.Contains(fmt.Sprint(out.Refused), "no device of this node") { // AMD's names on an NVIDIA node
		return 0, 0
	}
	said := desk.Status().Delivery.Text
	if _, err := fmt.Sscanf(said[max(strings.LastIndex(said, "up to "), 0):], "up to %d series", &most); err != nil {
		t.Fatalf("%+v: %v", out, err)
	}
	parsed := files.ParseDelivered(list, "", false)
	must(t, parsed.Err)
	turn, err := desk.Begin(ctx)
	must(t, err)
	must(t, turn.Serve(ctx, &lists.List{Hash: "x", Fields: parsed.Fields}))
	turn.End()
	time.Sleep(time.Minute)
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return most, len(regexp.MustCompile(`(?m)^[a-zA-Z]`).FindAllString(w.Body.String(), -1)) // own metrics are off
}

func TestCheckGuard(t *testing.T) {
	good := tempFile(t, "good.csv", csvB)
	bad := tempFile(t, "bad.csv", "# warpgauge: for=x\n"+csvB+"DCGM_FI_PROF_SM_ACTIVE, gauge, x\n")
	config := tempFile(t, "list.yaml", "version: 2\nmetrics:\n  fields:\n  - {name: DCGM_FI_DEV_GPU_TEMP, prometheusType: gauge, help: t}\n  file: /etc/passwd\n")
	options := tempFile(t, "options.yaml", "version: 2\nmetrics:\n  fields:\n  - {name: DCGM_FI_DEV_GPU_TEMP, prometheusType: gauge, help: t}\nserver: {maxConcurrentScrapes: 1}\ncollections:\n- {name: all, every: 10ms, metrics: {include: ['*']}}\n")
	execute(t, nil, simulated("check", "--guard", good)...).want(t, 0, "0 errors")
	execute(t, nil, simulated("check", "--guard", "--remote-limit=series=15", good)...).want(t, 1, "16 series", "1 error")
	execute(t, nil, simulated("check", "--guard", bad)...).want(t, 1, bad+":1: error", bad+":4: error: DCGM_FI_PROF_SM_ACTIVE")
	execute(t, nil, simulated("check", "--guard", config)...).want(t, 1, "metrics has both file and fields")
	execute(t, nil, simulated("check", "--guard", options)...).want(t, 1, options+":5: error: server", options+":4: error: DCGM_FI_DEV_GPU_TEMP: the interval 10ms")
	execute(t, nil, simulated("check", "--guard")...).want(t, 1, "name the FILE")
}
