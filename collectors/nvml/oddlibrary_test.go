//go:build linux && cgo

package nvml

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"warpgauge/collectors/nvml/internal/driver"
	"warpgauge/collectors/nvml/nvmltest"
	"warpgauge/pkg/collector"
)

// TestSlowFieldsOfAGPUInTrouble: with a list of slow fields alone, a GPU that fails or
// hangs answers no sample in which one is due.
func TestSlowFieldsOfAGPUInTrouble(t *testing.T) {
	n := nvmltest.New(t, nvmltest.Config{GPUs: 1})
	s := openReadings(t, n, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_DEV_RETIRED_DBE", "DCGM_FI_DEV_ROW_REMAP_FAILURE", "DCGM_FI_DEV_POWER_MGMT_LIMIT")[0]
	if err := s.sample(); err != nil {
		t.Fatal(err)
	}
	n.ResetCalls()
	if err := s.sample("DCGM_FI_DEV_POWER_MGMT_LIMIT"); err != nil || n.Calls("nvmlDeviceGetPowerManagementLimit") != 1 || n.Calls("nvmlDeviceGetFieldValues") != 0 {
		t.Errorf("one field is due: %v, calls %v", err, n.AllCalls())
	}
	n.Lose(0)
	for _, name := range []string{"DCGM_FI_DEV_POWER_MGMT_LIMIT", "DCGM_FI_DEV_ROW_REMAP_FAILURE"} {
		if err := s.sample(name); !errors.Is(err, collector.ErrDeviceLost) {
			t.Errorf("%s of a lost GPU: %v, want %v", name, err, collector.ErrDeviceLost)
		}
	}
	n.Restore(0)
	release := n.Hang(0, nvmltest.Every)
	defer release()
	done := make(chan error, 1)
	go func() { done <- s.sample("DCGM_FI_DEV_ROW_REMAP_FAILURE") }()
	n.WaitHanging(1)
	select {
	case err := <-done:
		t.Errorf("sample of a GPU that hangs returned %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	release()
	if err := <-done; err != nil {
		t.Errorf("when it answers again: %v", err)
	}
}

// TestATruncatedLibrary: it is named, and the next candidate is loaded. The loader would end the process.
func TestATruncatedLibrary(t *testing.T) {
	if nvmltest.OwnProcess(t) {
		return
	}
	n := nvmltest.New(t, nvmltest.Config{GPUs: 1})
	whole := n.Install(filepath.Join(t.TempDir(), driver.Soname))
	text, err := os.ReadFile(whole)
	must(t, err)
	cut := t.TempDir()
	must(t, os.WriteFile(filepath.Join(cut, driver.Soname), text[:len(text)/2], 0o600))
	t.Setenv("LD_LIBRARY_PATH", cut) // what the loader finds, says this process
	o := at(n)
	o.Library = ""
	_, err = New(o).Open(t.Context(), temperature(t))
	mustSay(t, err, filepath.Join(cut, driver.Soname), "truncated")
	o.DriverRoots = []string{filepath.Dir(whole)}
	c, sources := open(t, o)
	sampleAll(t, sources)
	if c.lib.path != whole {
		t.Errorf("loaded %s, want %s", c.lib.path, whole)
	}
}

func mustSay(t *testing.T, err error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want it to say %q", err, text)
		}
	}
}
