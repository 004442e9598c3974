package nvml

import (
	"testing"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/tree"
)

func TestPresent(t *testing.T) {
	f := func(what string, files map[string]string, want bool) {
		t.Helper()
		testkit.Equal(t, what, want, Present(tree.Write(t, files)))
	}
	f("nothing", nil, false)
	f("an AMD card and an NVIDIA network adapter", map[string]string{
		"sys/bus/pci/devices/0000:03:00.0/vendor": "0x1002\n", "sys/bus/pci/devices/0000:03:00.0/class": "0x030000\n",
		"sys/bus/pci/devices/0000:04:00.0/vendor": "0x10de\n", "sys/bus/pci/devices/0000:04:00.0/class": "0x020000\n",
		"dev/nvidia-uvm": "", "dev/dri/card0": "",
	}, false)
	f("a GPU without a driver", map[string]string{
		"sys/bus/pci/devices/0000:3b:00.0/vendor": "0x10de\n", "sys/bus/pci/devices/0000:3b:00.0/class": "0x030200\n",
	}, true)
	f("a control device", map[string]string{"dev/nvidiactl": ""}, true)
	f("a GPU in a container", map[string]string{"dev/nvidia3": ""}, true)
	f("a driver", map[string]string{"proc/driver/nvidia/version": "NVRM version: …"}, true)
	f("WSL", map[string]string{"dev/dxg": ""}, true)
	f("a Tegra", map[string]string{"dev/nvhost-gpu": ""}, true)
	f("a newer Tegra", map[string]string{"dev/nvgpu/igpu0/ctrl": ""}, true)
}
