package rocm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/dl"
	"warpgauge/pkg/field"
)

func absent(names []string) (string, error) {
	var e dl.OpenError
	for _, n := range names {
		e.Attempts = append(e.Attempts, dl.Attempt{Name: n, Text: n + ": cannot open shared object file: No such file or directory"})
	}
	return "", &e
}

func TestOpenSaysWhatThereIs(t *testing.T) {
	empty, driver := t.TempDir(), t.TempDir()
	if err := os.MkdirAll(filepath.Join(driver, "sys/class/kfd/kfd/topology"), 0o750); err != nil {
		t.Fatal(err)
	}
	var asked []string
	present := func(names []string) (string, error) {
		asked = names
		return "/usr/lib/librocm_smi64.so.7", nil
	}
	f := func(root string, find func([]string) (string, error), sentinel error, want string) {
		t.Helper()
		c := New(Options{Root: root, Find: find})
		sources, err := c.Open(context.Background(), field.List{})
		if len(sources) != 0 || !errors.Is(err, sentinel) {
			t.Fatalf("Open = %v, %v, want no source and %v", sources, err, sentinel)
		}
		if got := strings.ReplaceAll(err.Error(), root, ""); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		for range 2 {
			if err := c.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
	}
	f(empty, absent, collector.ErrNotLoaded,
		"look for ROCm SMI: library or driver not found: the loader finds no librocm_smi64.so.7, librocm_smi64.so.6, librocm_smi64.so.5, librocm_smi64.so.1, librocm_smi64.so, /opt/rocm/lib/librocm_smi64.so; no amdgpu driver (neither /sys/class/kfd/kfd/topology nor /sys/module/amdgpu); on a node with AMD GPUs install the amdgpu driver and ROCm SMI")
	f(driver, absent, collector.ErrNotLoaded,
		"look for ROCm SMI: library or driver not found: the loader finds no librocm_smi64.so.7, librocm_smi64.so.6, librocm_smi64.so.5, librocm_smi64.so.1, librocm_smi64.so, /opt/rocm/lib/librocm_smi64.so; amdgpu driver with /sys/class/kfd/kfd/topology; install ROCm SMI (package rocm-smi-lib), or name its directory in LD_LIBRARY_PATH")
	f(empty, present, collector.ErrNotLoaded,
		"look for ROCm SMI: library or driver not found: library /usr/lib/librocm_smi64.so.7; no amdgpu driver (neither /sys/class/kfd/kfd/topology nor /sys/module/amdgpu); on a node with AMD GPUs load the driver (modprobe amdgpu)")
	f(driver, present, collector.ErrNotBuiltIn,
		"look for ROCm SMI: not built into this binary: sampling through ROCm SMI is not part of this build; library /usr/lib/librocm_smi64.so.7; amdgpu driver with /sys/class/kfd/kfd/topology")
	if want := []string{"librocm_smi64.so.7", "librocm_smi64.so.6", "librocm_smi64.so.5", "librocm_smi64.so.1", "librocm_smi64.so", "/opt/rocm/lib/librocm_smi64.so"}; !slices.Equal(asked, want) {
		t.Errorf("asked the loader for %q, want %q", asked, want)
	}
}

// On the machine of the test, whatever it has: one line, and no source.
func TestOpenHere(t *testing.T) {
	c := New(Options{})
	if c.Name() != "rocm" {
		t.Errorf("Name() = %q", c.Name())
	}
	sources, err := c.Open(context.Background(), field.List{})
	if len(sources) != 0 || !errors.Is(err, collector.ErrNotLoaded) && !errors.Is(err, collector.ErrNotBuiltIn) {
		t.Fatalf("Open = %v, %v, want no source and ErrNotLoaded or ErrNotBuiltIn", sources, err)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than one line: %q", err)
	}
	t.Log(err)
}
