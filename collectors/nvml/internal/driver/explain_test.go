//go:build linux && cgo

package driver

import (
	"errors"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"warpgauge/internal/testkit/tree"
	"warpgauge/pkg/collector"
)

// TestExplain compares the errors for NVML's codes and the machine's files, remedy included.
func TestExplain(t *testing.T) {
	f := func(code nvml.Return, files map[string]string, notLoaded bool, want ...string) {
		t.Helper()
		err := Host{Root: tree.Write(t, files), Getenv: noVariables}.Explain("/x/libnvidia-ml.so.550.1", "12.550.2", code)
		if !errors.Is(err, code) || errors.Is(err, collector.ErrNotLoaded) != notLoaded {
			t.Errorf("got %v, want it to wrap %v, and ErrNotLoaded: %v", err, code, notLoaded)
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("got %v, want it to say %q", err, w)
			}
		}
	}
	loaded := map[string]string{"proc/driver/nvidia/version": loadedDriver, "dev/nvidiactl": ""}
	f(nvml.ERROR_LIB_RM_VERSION_MISMATCH, loaded, false, "is of driver 550.2", "the loaded kernel driver is 550.54.15", "reboot")
	f(nvml.ERROR_LIB_RM_VERSION_MISMATCH, map[string]string{".dockerenv": ""}, false, "is of unknown version", "restart it")
	f(nvml.ERROR_UNKNOWN, nil, true, "the kernel driver is not loaded")
	f(nvml.ERROR_NO_PERMISSION, loaded, false, "no permission to talk to the driver", "security modules")
	f(nvml.ERROR_OPERATING_SYSTEM, loaded, false, "block a device")
	f(nvml.ERROR_LIBRARY_NOT_FOUND, loaded, false, "this is a stub")
	f(nvml.ERROR_DRIVER_NOT_LOADED, loaded, false, "being loaded or unloaded")
	f(nvml.ERROR_RESET_REQUIRED, loaded, false, "reset the GPU")
	f(nvml.ERROR_UNKNOWN, loaded, false, "the kernel driver 550.54.15 is loaded; the kernel log may say more")
	f(nvml.ERROR_UNKNOWN, map[string]string{"proc/driver/nvidia/version": loadedDriver}, false, "there is no", "nvidia-modprobe")
}
