package nvml

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
	for path, text := range map[string]string{
		"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n",
		"dev/nvidiactl":              "",
	} {
		path = filepath.Join(driver, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var asked []string
	present := func(names []string) (string, error) {
		asked = names
		return "/usr/lib/libnvidia-ml.so.1", nil
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
		"look for NVML: library or driver not found: the loader finds no libnvidia-ml.so.1; no NVIDIA driver (neither /proc/driver/nvidia/version nor /dev/nvidiactl); on a node with NVIDIA GPUs install the driver")
	f(driver, absent, collector.ErrNotLoaded,
		"look for NVML: library or driver not found: the loader finds no libnvidia-ml.so.1; NVIDIA driver 550.54.15 and /dev/nvidiactl; install the driver's libraries, or start the container with NVIDIA's runtime and NVIDIA_DRIVER_CAPABILITIES=utility")
	f(empty, present, collector.ErrNotLoaded,
		"look for NVML: library or driver not found: library /usr/lib/libnvidia-ml.so.1; no NVIDIA driver (neither /proc/driver/nvidia/version nor /dev/nvidiactl); on a node with NVIDIA GPUs load the driver (modprobe nvidia)")
	f(driver, present, collector.ErrNotBuiltIn,
		"look for NVML: not built into this binary: sampling through NVML is not part of this build; library /usr/lib/libnvidia-ml.so.1; NVIDIA driver 550.54.15 and /dev/nvidiactl")
	if want := []string{"libnvidia-ml.so.1"}; !slices.Equal(asked, want) {
		t.Errorf("asked the loader for %q, want %q", asked, want)
	}
}

// On the machine of the test, whatever it has: one line, and no source.
func TestOpenHere(t *testing.T) {
	c := New(Options{})
	if c.Name() != "nvml" {
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
