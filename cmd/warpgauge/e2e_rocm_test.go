package main_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/programtest"
)

// TestE2EAMD lets the binary and its child process read simulated GPUs, whose files a script mounts over /sys. It
// compares constant values with the tree, and expects the others to change.
func TestE2EAMD(t *testing.T) {
	t.Parallel()
	tree := filepath.Join(t.TempDir(), "tree")
	const energy = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
	csv := file(t, "amd.csv", "DCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_FI_DEV_FB_TOTAL, gauge, m\nDCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, g\n"+energy+", counter, e\n")
	e := serveBy(t, onAMD(t, tree, "4", build(t)),
		"--enable-only=rocm", "--enable-rocm=true", "--rocm-source=sysfs", "--isolation=process", "--collectors="+csv, "-c", "100")
	gpus, err := filepath.Glob(filepath.Join(tree, "sys/bus/pci/drivers/amdgpu/*:*:*.*"))
	if err != nil || len(gpus) != 4 {
		t.Fatalf("GPUs in %q: %q, %v", tree, gpus, err)
	}
	first := e.await(t, "a page with all GPUs", count(4, "DCGM_FI_DEV_FB_TOTAL"), count(4, "DCGM_FI_PROF_GR_ENGINE_ACTIVE"), func(p page) error {
		for _, g := range gpus {
			mib, err := strconv.ParseFloat(sysText(t, g, "mem_info_vram_total"), 64)
			must(t, err)
			if err := p.want(mib/(1<<20), "DCGM_FI_DEV_FB_TOTAL", "UUID", "GPU-"+sysText(t, g, "unique_id")); err != nil {
				return err
			}
		}
		return nil
	}).values(energy)["0"]
	e.await(t, "moving values", func(p page) error {
		if v := p.values(energy)["0"]; v <= first {
			return fmt.Errorf("energy %v, was %v", v, first)
		}
		for gpu, v := range p.values("DCGM_FI_DEV_GPU_TEMP") {
			if v < 20 || v > 110 {
				return fmt.Errorf("GPU %s has %v °C", gpu, v)
			}
		}
		return nil
	})
}

// onAMD returns the command that runs exe with simulated GPUs in /sys, whose files are in tree. The simulation ends with
// the test.
func onAMD(t *testing.T, tree, gpus, exe string) []string {
	t.Helper()
	script, err := filepath.Abs("../../collectors/rocm/rocmtest/fake-amd-sysfs.sh")
	must(t, err)
	if out, err := exec.CommandContext(t.Context(), "bash", script, "-n", "1", "--", "true").CombinedOutput(); err != nil { // in most containers
		programtest.Missing(t, "unshare", "no mount namespace for %s: %v: %s", filepath.Base(script), err, out)
	}
	t.Cleanup(func() { // what moves the values ends a little after the command, and has its arguments
		eventually.OK(t, "the end of the simulation", func() error {
			commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
			for _, path := range commands {
				if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte("\x00"+tree+"\x00")) {
					return fmt.Errorf("%s: %q", path, text)
				}
			}
			return err
		})
	})
	return []string{"bash", script, "-n", gpus, "-m", "mi300x", "-f", "1.7", "-i", "50", "-t", tree, "--", exe}
}

func sysText(t *testing.T, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	must(t, err)
	return strings.TrimSpace(string(b))
}
