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
	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/programtest"
)

// TestSimulatedNode runs the whole check: real binary, real dlopen, simulated NVML and nvidia-smi.
func TestSimulatedNode(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes half a minute")
	}
	programtest.Find(t, "cc")
	dir := t.TempDir()
	n, err := nvmltest.Write(dir, nvmltest.Config{GPUs: 2}, func(err error) { t.Fatal(err) })
	testkit.Must(t, err)
	n.SetLoad(nvmltest.Host, nvmltest.Steady(0))
	o := options{exporter: filepath.Join(dir, "warpgauge"), library: n.Library(), smi: filepath.Join(dir, "nvidia-smi"), rounds: 2, warmup: 2500 * time.Millisecond}
	for to, what := range map[string]string{o.exporter: "warpgauge/cmd/warpgauge", o.smi: "warpgauge/collectors/nvml/nvmltest/cmd/nvidia-smi"} {
		cmd := exec.CommandContext(t.Context(), "go", "build", "-o", to, what)
		cmd.Env = append(os.Environ(), "CGO_CFLAGS="+cmp.Or(os.Getenv("CGO_CFLAGS"), "-g -O2 -Wno-deprecated-declarations"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", what, err, out)
		}
	}
	t.Setenv("LD_LIBRARY_PATH", dir) // nvidia-smi finds NVML there
	r := testkit.Get(run(t.Context(), o))(t)
	var table bytes.Buffer
	testkit.Must(t, r.print(&table))
	if bad := r.failed(); bad > 0 {
		t.Errorf("%d verdicts are bad:\n%s", bad, &table)
	}
	for _, want := range []string{
		banner, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_SERIAL", "DCGM_FI_DEV_FB_USED",
	} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table lacks %s:\n%s", want, &table)
		}
	}
	if h := n.Held(); h != (nvmltest.Held{}) {
		t.Errorf("after the check something is held: %+v", h)
	}
}
