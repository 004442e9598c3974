//go:build linux && cgo

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/internal/testkit/programtest"
)

// simulation is a directory with everything that gpu-check needs.
type simulation struct {
	dir  string
	node *nvmltest.Node
	options
}

// build compiles one of our programs.
func build(t *testing.T, to, what string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", to, what)
	cmd.Env = os.Environ()
	if os.Getenv("CGO_CFLAGS") == "" {
		cmd.Env = append(cmd.Env, "CGO_CFLAGS=-g -O2 -Wno-deprecated-declarations")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", what, err, out)
	}
}

func simulate(t *testing.T, c nvmltest.Config) *simulation {
	t.Helper()
	programtest.Find(t, "cc")
	dir := t.TempDir()
	n, err := nvmltest.Write(dir, c, func(err error) { t.Fatal(err) })
	if err != nil {
		t.Fatal(err)
	}
	n.SetLoad(nvmltest.Host, nvmltest.Steady(0))
	cuda, err := n.WriteCUDA()
	if err != nil {
		t.Fatal(err)
	}
	s := &simulation{dir: dir, node: n, options: options{
		exporter: filepath.Join(dir, "warpgauge"), library: n.Library(), smi: filepath.Join(dir, "nvidia-smi"), cuda: cuda,
		rounds: 2, warmup: 2500 * time.Millisecond, window: time.Second,
	}}
	build(t, s.exporter, "warpgauge/cmd/warpgauge")
	build(t, s.smi, "warpgauge/collectors/nvml/nvmltest/cmd/nvidia-smi")
	t.Setenv("LD_LIBRARY_PATH", dir) // where nvidia-smi finds NVML
	return s
}

// The whole check on a simulated node: real binary, real dlopen, real PTX text,
// simulated NVML, nvidia-smi and CUDA.
func TestSimulatedNode(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes half a minute")
	}
	if nvmltest.OwnProcess(t) { // next to the other, whose time it is as well
		return
	}
	s := simulate(t, nvmltest.Config{GPUs: 2})
	r, err := run(t.Context(), s.options, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	var table, section bytes.Buffer
	if err := printReport(&table, r, false); err != nil {
		t.Fatal(err)
	}
	if err := writeMarkdown(&section, r); err != nil {
		t.Fatal(err)
	}
	if n := r.failed(); n > 0 {
		t.Errorf("%d verdicts are bad:\n%s", n, &table)
	}
	if !r.simulated || !strings.Contains(table.String(), banner) || !strings.Contains(section.String(), "(simulated)") {
		t.Errorf("it does not say that the GPUs are simulated:\n%s", &table)
	}
	for _, metric := range []string{
		"DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_PIPE_FP32_ACTIVE",
		"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_SERIAL", "DCGM_FI_DEV_FB_USED",
	} {
		if !strings.Contains(table.String(), metric) {
			t.Errorf("the table lacks %s", metric)
		}
	}
	if len(r.loads) != 4 || len(r.cpu) != 3 || len(r.costs) < 10 {
		t.Errorf("%d loads, %d intervals, %d calls", len(r.loads), len(r.cpu), len(r.costs))
	}
	if h := s.node.Held(); h != (nvmltest.Held{}) {
		t.Errorf("after the check something is held: %+v", h)
	}
}

// Without tensor cores and profiling, without many readings.
func TestSimulatedOldBoard(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a quarter of a minute")
	}
	if nvmltest.OwnProcess(t) { // libcuda is loaded once in a process
		return
	}
	s := simulate(t, nvmltest.Config{Preset: "gtx1080"})
	r, err := run(t.Context(), s.options, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	var table bytes.Buffer
	if err := printReport(&table, r, false); err != nil {
		t.Fatal(err)
	}
	if n := r.failed(); n > 0 {
		t.Errorf("%d verdicts are bad:\n%s", n, &table)
	}
	if len(r.loads) != 1 || len(r.notes) != 1 || !strings.Contains(r.notes[0], halfKernel.name) {
		t.Errorf("loads %v, notes %q", r.loads, r.notes)
	}
}
