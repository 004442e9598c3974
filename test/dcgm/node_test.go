//go:build linux && cgo

// Package dcgm_test tests the real binary with NVIDIA's own DCGM host engine, both on one simulated libnvidia-ml.so.1.
// make test-dcgm runs it if nv-hostengine is installed.
package dcgm_test

import (
	"context"
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
	"sync"
	"syscall"
	"testing"
	"time"

	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/loopback"
	"warpgauge/internal/testkit/programtest"
)

// node is a simulated node with NVIDIA's host engine, which loads its own copy of the library.
type node struct {
	*nvmltest.Node
	tb      testing.TB
	config  nvmltest.Config
	address string
	env     []string
	engine  *programtest.Process
}

// hostEngine is the program in NVIDIA's packages datacenter-gpu-manager-4-*.
const hostEngine = "nv-hostengine"

func newNode(tb testing.TB, c nvmltest.Config) *node {
	tb.Helper()
	if os.Getenv("DCGM_TEST_REAL") != "1" {
		tb.Skip("DCGM_TEST_REAL is not 1: make test-dcgm sets it")
	}
	n, err := nvmltest.Write(tb.TempDir(), c, func(err error) { tb.Error(err) })
	testkit.Must(tb, err)
	tb.Cleanup(func() {
		testkit.Must(tb, n.Close())
	})
	port := testkit.Get(loopback.Reserve())(tb)
	tb.Cleanup(func() { _ = port.Close() })
	out := &node{Node: n, tb: tb, config: c, address: port.Address()}
	out.env = find(n)
	out.startEngine(out.env)
	return out
}

// find returns an environment in which the loader finds the library of n.
func find(n *nvmltest.Node) []string {
	return append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Dir(n.Library())+":"+os.Getenv("LD_LIBRARY_PATH"))
}

// startEngineOn starts the engine without access to the hidden GPUs.
func (n *node) startEngineOn(hidden ...int) {
	n.tb.Helper()
	part := testkit.Get(nvmltest.Write(n.tb.TempDir(), n.config, func(err error) { n.tb.Error(err) }))(n.tb)
	n.tb.Cleanup(func() { _ = part.Close() })
	for _, gpu := range hidden {
		part.Remove(gpu)
	}
	n.startEngine(find(part))
}

// startEngine starts the engine and waits until it listens.
func (n *node) startEngine(env []string) {
	n.tb.Helper()
	host, port, _ := strings.Cut(n.address, ":")
	log := filepath.Join(n.tb.TempDir(), "engine.log")
	n.engine = programtest.Start(n.tb, programtest.Find(n.tb, hostEngine), []string{"-n", "-b", host, "-p", port, "-f", log}, programtest.Options{Env: env})
	n.engine.Await(n.tb, "the host engine", func() error {
		_, err := n.engine.Address()
		return err
	})
}

// killEngine kills the engine with SIGKILL.
func (n *node) killEngine() {
	n.engine.Signal(n.tb, syscall.SIGKILL)
	<-n.engine.Ended()
}

var built = sync.OnceValues(func() (string, error) {
	exe := filepath.Join(os.TempDir(), "warpgauge-test-dcgm") // go build keeps a current binary
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", exe, "../../cmd/warpgauge")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the binary: %w\n%s", err, out)
	}
	return exe, nil
})

// exporter is the real binary.
type exporter struct {
	*programtest.Process
	url string
}

// serve starts the binary as on a node with both libraries and a host engine.
func (n *node) serve(tb testing.TB, args ...string) *exporter {
	tb.Helper()
	e := &exporter{Process: programtest.Start(tb, n.binary(tb), n.flags(args...), programtest.Options{Env: n.env})}
	e.url = e.AwaitReady(tb, "/health")
	return e
}

// killChildren kills the processes that have a vendor's library.
func (e *exporter) killChildren(tb testing.TB) {
	tb.Helper()
	tasks := testkit.Get(filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", e.PID())))(tb)
	for _, path := range tasks {
		text, _ := os.ReadFile(path) // an ended thread has none
		for word := range strings.FieldsSeq(string(text)) {
			pid := testkit.Get(strconv.Atoi(word))(tb)
			testkit.Must(tb, syscall.Kill(pid, syscall.SIGKILL))
		}
	}
}

func (n *node) binary(tb testing.TB) string {
	tb.Helper()
	exe := testkit.Get(built())(tb)
	return exe
}

func (n *node) flags(args ...string) []string {
	return append([]string{
		"--address=127.0.0.1:0", "--enable-only=nvml,dcgm", "--enable-dcgm=true", "--enable-nvml=true", "--nvml-library=" + n.Library(),
		"-r", n.address, "--exporter-metrics=full",
	}, args...)
}

// page holds the values of a page by series.
type page map[string]float64

var sample = regexp.MustCompile(`(?m)^([a-zA-Z_][^ {]*(?:\{.*\})?) (\S+)$`)

func (e *exporter) get(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.url+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, resp.Status, text)
	}
	return string(text), err
}

func (e *exporter) scrape(tb testing.TB) page {
	tb.Helper()
	text, err := e.get(context.Background(), "/metrics") // watch scrapes until it is stopped
	if err != nil {
		tb.Error(err)
	}
	out := page{}
	for _, m := range sample.FindAllStringSubmatch(text, -1) {
		v, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			tb.Fatalf("%q: %v", m[0], err)
		}
		out[m[1]] = v
	}
	return out
}

// label returns the value of a series' label.
func label(series, name string) string {
	_, rest, _ := strings.Cut(series, name+`="`)
	v, _, _ := strings.Cut(rest, `"`)
	return v
}

// series returns the series with DCGM names by GPU. A series' first label is the GPU's index.
func (p page) series() map[string][]string {
	out := map[string][]string{}
	for s := range p {
		if family, _, _ := strings.Cut(s, "{"); strings.HasPrefix(family, "DCGM_FI_") || family == "DCGM_EXP_GPU_HEALTH_STATUS" {
			out[label(s, "gpu")] = append(out[label(s, "gpu")], family)
		}
	}
	return out
}

// lacks returns the families of want that a page lacks, by GPU.
func (p page) lacks(want map[string][]string, but ...string) (out []string) {
	have := p.series()
	for gpu, families := range want {
		if slices.Contains(but, gpu) {
			continue
		}
		for _, f := range families {
			if !slices.Contains(have[gpu], f) {
				out = append(out, gpu+" "+f)
			}
		}
	}
	slices.Sort(out)
	return out
}

// of returns the smallest value of a family, by the value of a label.
func (p page) of(family, name string) map[string]float64 {
	out := map[string]float64{}
	for s, v := range p {
		if f, _, _ := strings.Cut(s, "{"); f == family {
			if least, known := out[label(s, name)]; !known || v < least {
				out[label(s, name)] = v
			}
		}
	}
	return out
}

// verdicts returns the state of each GPU that is not ok.
func (p page) verdicts() (out []string) {
	for s := range p {
		if strings.HasPrefix(s, "warpgauge_device_health{") && label(s, "state") != "ok" {
			out = append(out, fmt.Sprintf("%s %s %s", label(s, "gpu"), label(s, "state"), label(s, "reason")))
		}
	}
	slices.Sort(out)
	return out
}

// speaker returns the collector whose values are shown.
func (p page) speaker() string {
	for c, v := range p.of("warpgauge_gpu_speaker", "collector") {
		if v == 1 {
			return c
		}
	}
	return ""
}

// await waits until f returns no error for a page, and returns how long that took.
func (e *exporter) await(tb testing.TB, what string, f func(page) error) time.Duration {
	tb.Helper()
	began := time.Now()
	eventually.OK(tb, what, func() error { return f(e.scrape(tb)) })
	return time.Since(began)
}

// whole returns a check that every GPU that is not in but has all its series, with values younger than 2.5 seconds.
func (n *node) whole(want map[string][]string, but ...string) func(page) error {
	return func(p page) error {
		if lacks := p.lacks(want, but...); len(lacks) > 0 {
			return fmt.Errorf("GPUs lack %d series: %q", len(lacks), lacks[:min(8, len(lacks))])
		}
		if gpu, age := p.oldest(but...); age > 2.5 {
			return fmt.Errorf("the values of GPU %s are %.1f s old", gpu, age)
		}
		return nil
	}
}

// oldest returns the oldest values of a GPU that is not in but: their age in the collector that shows them.
func (p page) oldest(but ...string) (gpu string, age float64) {
	absent := map[string]bool{} // by collector and device
	for series := range p {
		if strings.HasPrefix(series, "warpgauge_device_state{") && label(series, "state") == "absent" {
			absent[label(series, "collector")+label(series, "device")] = true
		}
	}
	for series, old := range p {
		name, device, by := label(series, "gpu"), label(series, "device"), label(series, "collector")
		shown := strings.HasPrefix(series, "warpgauge_sample_age_seconds{") && !absent[by+device] && (by == p.speaker() || absent[p.speaker()+device])
		if shown && old > age && !slices.Contains(but, name) {
			gpu, age = name, old
		}
	}
	return gpu, age
}

// steady waits until DCGM serves all GPUs, and returns their series.
func (n *node) steady(tb testing.TB, e *exporter) map[string][]string {
	tb.Helper()
	var last map[string][]string
	same := 0
	e.await(tb, "the same page of DCGM for three seconds", func(p page) error {
		now := p.series()
		if len(now) < n.GPUs() || p.speaker() == "nvml" || len(p.verdicts()) > 0 || len(p.lacks(last)) > 0 {
			last, same = now, 0
		}
		time.Sleep(100 * time.Millisecond) // ten scrapes per second
		if same++; same < 30 {
			return fmt.Errorf("%d GPUs of %s, %q", len(now), p.speaker(), p.verdicts())
		}
		return nil
	})
	return last
}
