package main_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"warpgauge/collectors/rocm/rocmtest/smitest"
	"warpgauge/internal/testkit/eventually"
	"warpgauge/internal/testkit/programtest"
)

// TestE2EAMD lets the real binary, its child process included, read simulated
// GPUs that lie over /sys: from the files, and through the installed library.
func TestE2EAMD(t *testing.T) {
	t.Parallel()
	exe := build(t)
	script, err := filepath.Abs("../../collectors/rocm/rocmtest/fake-amd-sysfs.sh")
	must(t, err)
	namespaces(t, script)
	t.Run("sysfs", func(t *testing.T) {
		t.Parallel()
		e, sys := serveAMD(t, exe, script, []string{"-n", "4", "-m", "mi300x", "-f", "1.7"}, "--rocm-source=sysfs")
		checkAMD(t, e, sys)
		eventually.OK(t, "a share of time", func() error {
			if n := len(e.scrape(t, acceptText).values("DCGM_FI_PROF_GR_ENGINE_ACTIVE")); n != 4 {
				return fmt.Errorf("%d GPUs have a share of time, want 4", n)
			}
			return nil
		})
	})
	t.Run("smi", func(t *testing.T) {
		t.Parallel()
		smitest.Installed(t)
		e, sys := serveAMD(t, exe, script, []string{"-n", "2", "-m", "mi250x"}, "--rocm-source=smi")
		checkAMD(t, e, sys)
		if !strings.Contains(e.Output(), "librocm_smi64") {
			t.Error("the log does not name the library")
		}
	})
}

// namespaces ends the test where the script cannot put a tree over /sys: in most
// containers.
func namespaces(t *testing.T, script string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "bash", script, "-n", "1", "--", "true").CombinedOutput()
	if err != nil {
		programtest.Missing(t, "unshare", "no mount namespace for %s: %v: %s", filepath.Base(script), err, out)
	}
}

// serveAMD serves what the exporter sees inside the script's namespace, and
// returns the tree, in which the values move.
func serveAMD(t *testing.T, exe, script string, options []string, args ...string) (e *exporter, sys string) {
	t.Helper()
	tree := filepath.Join(t.TempDir(), "tree")
	options = append(options, "-i", "50", "-t", tree)
	t.Cleanup(func() { // what moves the values ends a little after the command, and has its arguments
		eventually.OK(t, "the end of the simulation", func() error {
			commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
			if err != nil {
				return err
			}
			for _, path := range commands {
				if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte("\x00"+tree+"\x00")) {
					return fmt.Errorf("%s: %q", path, text)
				}
			}
			return nil
		})
	})
	wrapper := file(t, "warpgauge.sh", fmt.Sprintf("#!/bin/sh\nexec bash '%s' %s -- '%s' \"$@\"\n", script, strings.Join(options, " "), exe))
	must(t, os.Chmod(wrapper, 0o700))
	csv := file(t, "amd.csv", "DCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_FI_DEV_FB_TOTAL, gauge, m\nDCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, counter, e\n"+
		"DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, g\nDCGM_FI_DEV_POWER_USAGE, gauge, p\n")
	e = serve(t, wrapper, append([]string{"--enable-only=rocm", "--enable-rocm=true", "--collectors=" + csv, "-c", "100"}, args...)...)
	return e, filepath.Join(tree, "sys")
}

// checkAMD compares what is fixed with the tree, and wants what moves to move.
func checkAMD(t *testing.T, e *exporter, sys string) {
	t.Helper()
	gpus := amdGPUs(t, sys)
	eventually.OK(t, "a page with all GPUs", func() error {
		p := e.scrape(t, acceptText)
		for _, g := range gpus {
			mib := sysNumber(t, filepath.Join(g, "mem_info_vram_total")) / (1 << 20)
			id := "GPU-" + sysText(t, filepath.Join(g, "unique_id"))
			if err := p.want(mib, "DCGM_FI_DEV_FB_TOTAL", "UUID", id); err != nil {
				return err
			}
		}
		if n := len(p.values("DCGM_FI_DEV_FB_TOTAL")); n != len(gpus) {
			return fmt.Errorf("%d GPUs, the tree has %d", n, len(gpus))
		}
		return nil
	})
	first := e.scrape(t, acceptText).values("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")["0"]
	eventually.OK(t, "moving values", func() error {
		p := e.scrape(t, acceptText)
		if v := p.values("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")["0"]; v <= first {
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

// amdGPUs are the directories of the GPUs of a tree.
func amdGPUs(t *testing.T, sys string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(sys, "class/drm/card*/device/unique_id"))
	if err != nil || len(all) == 0 {
		t.Fatal(errors.Join(err, fmt.Errorf("no GPU in %q", sys)))
	}
	for i, f := range all {
		all[i] = filepath.Dir(f)
	}
	return all
}

func sysText(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return strings.TrimSpace(string(b))
}

func sysNumber(t *testing.T, path string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(sysText(t, path), 64)
	must(t, err)
	return v
}
