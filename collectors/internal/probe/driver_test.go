package probe

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	closedDriver = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version:  gcc version 12.2.0\n"
	openDriver   = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  560.35.03  Release Build\n"
)

// tree writes files (path → text) below a new directory and returns it. A path
// that ends in a slash becomes a directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for path, text := range files {
		full := filepath.Join(root, path)
		dir := filepath.Dir(full)
		if strings.HasSuffix(path, "/") {
			dir = full
		}
		if err := os.MkdirAll(dir, 0o750); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(path, "/") {
			continue
		}
		if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestDrivers(t *testing.T) {
	f := func(look func(Host) Driver, files map[string]string, loaded bool, want string) {
		t.Helper()
		root := tree(t, files)
		got := look(Host{Root: root})
		text := strings.ReplaceAll(got.Text, root, "")
		if got.Loaded != loaded || text != want {
			t.Errorf("got  %v, %s\nwant %v, %s", got.Loaded, text, loaded, want)
		}
	}
	nvidia, amd := Host.NVIDIA, Host.AMD
	f(nvidia, nil, false, "no NVIDIA driver (neither /proc/driver/nvidia/version nor /dev/nvidiactl)")
	f(nvidia, map[string]string{"proc/driver/nvidia/version": closedDriver, "dev/nvidiactl": ""}, true,
		"NVIDIA driver 550.54.15 and /dev/nvidiactl")
	f(nvidia, map[string]string{"proc/driver/nvidia/version": openDriver}, true,
		"NVIDIA driver 560.35.03 but no /dev/nvidiactl")
	f(nvidia, map[string]string{"dev/nvidiactl": ""}, true,
		"/dev/nvidiactl but no /proc/driver/nvidia/version")

	f(amd, nil, false, "no amdgpu driver (neither /sys/class/kfd/kfd/topology nor /sys/module/amdgpu)")
	f(amd, map[string]string{"sys/class/kfd/kfd/topology/": ""}, true,
		"amdgpu driver with /sys/class/kfd/kfd/topology")
	f(amd, map[string]string{"sys/module/amdgpu/": "", "sys/class/drm/card1/device/vendor": "0x1002\n"}, true,
		"amdgpu driver with cards in /sys/class/drm but no /sys/class/kfd/kfd/topology")
	f(amd, map[string]string{"sys/module/amdgpu/": "", "sys/class/drm/card0/device/vendor": "0x10de\n"}, false,
		"amdgpu driver in /sys/module/amdgpu but neither /sys/class/kfd/kfd/topology nor an AMD card in /sys/class/drm")
}

func TestHostDefaultsToTheRoot(t *testing.T) {
	if got := (Host{}).path("/dev/nvidiactl"); got != "/dev/nvidiactl" {
		t.Errorf("got %q, want /dev/nvidiactl", got)
	}
}

func TestNVIDIAVersion(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		if got := nvidiaVersion(text); got != want {
			t.Errorf("nvidiaVersion(%q) = %q, want %q", text, got, want)
		}
	}
	f(closedDriver, "550.54.15")
	f(openDriver, "560.35.03")
	f("NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.82", "470.82")
	f("", "of unknown version")
	f("\n550.54.15", "of unknown version") // only the first line is the driver's
	f("NVRM version: . .. 5 .5 5.", "of unknown version")
}
