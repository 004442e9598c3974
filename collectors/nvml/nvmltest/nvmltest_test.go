//go:build linux && cgo

package nvmltest_test

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"warpgauge/collectors/nvml/nvmltest"
)

// open initialises go-nvml on the node's library until the test ends.
func open(t *testing.T, n *nvmltest.Node) nvml.Interface {
	t.Helper()
	api := nvml.New(nvml.WithLibraryPath(n.Library()))
	if ret := api.Init(); ret != nvml.SUCCESS {
		t.Fatalf("Init: %v", ret)
	}
	t.Cleanup(func() {
		if ret := api.Shutdown(); ret != nvml.SUCCESS && ret != nvml.ERROR_UNINITIALIZED {
			t.Errorf("Shutdown: %v", ret)
		}
	})
	return api
}

func device(t *testing.T, api nvml.Interface, index int) nvml.Device {
	t.Helper()
	d, ret := api.DeviceGetHandleByIndex(index)
	if ret != nvml.SUCCESS {
		t.Fatalf("DeviceGetHandleByIndex(%d): %v", index, ret)
	}
	return d
}

func TestPresets(t *testing.T) {
	for _, name := range nvmltest.Presets() {
		t.Run(name, func(t *testing.T) {
			n := nvmltest.New(t, nvmltest.Config{Preset: name})
			api := open(t, n)
			count, ret := api.DeviceGetCount()
			if ret != nvml.SUCCESS || count != n.GPUs() {
				t.Fatalf("count = %d, %v, want %d", count, ret, n.GPUs())
			}
			for i := range count {
				uuid, ret := device(t, api, i).GetUUID()
				if ret != nvml.SUCCESS || uuid != nvmltest.UUID(i) {
					t.Errorf("UUID of %d = %q, %v, want %q", i, uuid, ret, nvmltest.UUID(i))
				}
			}
		})
	}
}

func must(t *testing.T, ret nvml.Return) {
	t.Helper()
	if ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
}
