//go:build linux && cgo

package main

import (
	"bytes"
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/internal/testkit/programtest"
)

// simulate makes the whole check, without load, on a simulated node: real binary, real dlopen, simulated NVML and
// nvidia-smi. It returns the report as a table.
func simulate(t *testing.T, c nvmltest.Config) (*record, *nvmltest.Node, string) {
	t.Helper()
	programtest.Find(t, "cc")
	dir := t.TempDir()
	n, err := nvmltest.Write(dir, c, func(err error) { t.Fatal(err) })
	if err != nil {
		t.Fatal(err)
	}
	n.SetLoad(nvmltest.Host, nvmltest.Steady(0))
	o := options{
		exporter: filepath.Join(dir, "warpgauge"), library: n.Library(), smi: filepath.Join(dir, "nvidia-smi"),
		rounds: 2, warmup: 2500 * time.Millisecond, window: time.Second,
	}
	for to, what := range map[string]string{o.exporter: "warpgauge/cmd/warpgauge", o.smi: "warpgauge/collectors/nvml/nvmltest/cmd/nvidia-smi"} {
		cmd := exec.CommandContext(t.Context(), "go", "build", "-o", to, what)
		cmd.Env = append(os.Environ(), "CGO_CFLAGS="+cmp.Or(os.Getenv("CGO_CFLAGS"), "-g -O2 -Wno-deprecated-declarations"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", what, err, out)
		}
	}
	t.Setenv("LD_LIBRARY_PATH", dir) // where nvidia-smi finds NVML
	r, err := run(t.Context(), o, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	var table bytes.Buffer
	if err := printReport(&table, r, false); err != nil {
		t.Fatal(err)
	}
	if bad := r.failed(); bad > 0 {
		t.Errorf("%d verdicts are bad:\n%s", bad, &table)
	}
	return r, n, table.String()
}

func TestSimulatedNode(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes half a minute")
	}
	if nvmltest.OwnProcess(t) { // next to the other, whose time it is as well
		return
	}
	r, node, table := simulate(t, nvmltest.Config{GPUs: 2})
	var section bytes.Buffer
	if err := writeMarkdown(&section, r); err != nil {
		t.Fatal(err)
	}
	if !r.simulated || !strings.Contains(table, banner) || !strings.Contains(section.String(), "(simulated)") {
		t.Errorf("it does not say that the GPUs are simulated:\n%s", table)
	}
	for _, metric := range []string{"DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_SERIAL", "DCGM_FI_DEV_FB_USED"} {
		if !strings.Contains(table, metric) {
			t.Errorf("the table lacks %s", metric)
		}
	}
	if len(r.cpu) != 3 || len(r.costs) < 10 {
		t.Errorf("%d intervals, %d calls", len(r.cpu), len(r.costs))
	}
	if u := r.cpu[2]; u.percent <= 0 || u.memory <= 0 { // a second at longer intervals may cost less than the kernel counts
		t.Errorf("at %v: %v %% of a core, %v bytes", u.every, u.percent, u.memory)
	}
	if h := node.Held(); h != (nvmltest.Held{}) {
		t.Errorf("after the check something is held: %+v", h)
	}
}
