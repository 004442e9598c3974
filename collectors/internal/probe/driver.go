package probe

import (
	"os"
	"path/filepath"
	"strings"
)

// Driver is what the kernel side shows.
type Driver struct {
	Loaded bool
	Text   string
}

// Host is the file tree in which drivers show themselves. Root is where it is
// mounted, "" for "/".
type Host struct{ Root string }

// NVIDIA looks for the NVIDIA kernel driver and its control device.
func (h Host) NVIDIA() Driver {
	version, ctl := h.path("/proc/driver/nvidia/version"), h.path("/dev/nvidiactl")
	text, err := os.ReadFile(version)
	hasVersion, hasCtl := err == nil, exists(ctl)
	switch {
	case hasVersion && hasCtl:
		return Driver{true, "NVIDIA driver " + nvidiaVersion(string(text)) + " and " + ctl}
	case hasVersion:
		return Driver{true, "NVIDIA driver " + nvidiaVersion(string(text)) + " but no " + ctl}
	case hasCtl:
		return Driver{true, ctl + " but no " + version}
	default:
		return Driver{false, "no NVIDIA driver (neither " + version + " nor " + ctl + ")"}
	}
}

// NVIDIAVersion is the version of the NVIDIA kernel driver that is loaded.
func (h Host) NVIDIAVersion() (version string, loaded bool) {
	text, err := os.ReadFile(h.path("/proc/driver/nvidia/version"))
	if err != nil {
		return "", false
	}
	return nvidiaVersion(string(text)), true
}

// AMD looks for the compute side of the amdgpu driver, or, where that is not
// configured, for graphics cards of AMD that the driver serves.
func (h Host) AMD() Driver {
	kfd, module, drm := h.path("/sys/class/kfd/kfd/topology"), h.path("/sys/module/amdgpu"), h.path("/sys/class/drm")
	switch {
	case exists(kfd):
		return Driver{true, "amdgpu driver with " + kfd}
	case exists(module) && hasAMDCard(drm):
		return Driver{true, "amdgpu driver with cards in " + drm + " but no " + kfd}
	case exists(module):
		return Driver{false, "amdgpu driver in " + module + " but neither " + kfd + " nor an AMD card in " + drm}
	default:
		return Driver{false, "no amdgpu driver (neither " + kfd + " nor " + module + ")"}
	}
}

func (h Host) path(p string) string { return filepath.Join("/", h.Root, p) }

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// hasAMDCard reports whether a card of PCI vendor 0x1002 (ATI, now AMD) is listed.
func hasAMDCard(drm string) bool {
	vendors, err := filepath.Glob(filepath.Join(drm, "card*", "device", "vendor"))
	if err != nil {
		return false
	}
	for _, v := range vendors {
		if text, err := os.ReadFile(v); err == nil && strings.TrimSpace(string(text)) == "0x1002" {
			return true
		}
	}
	return false
}

// nvidiaVersion takes the driver's version from the first line of
// /proc/driver/nvidia/version. The words before it differ between the open and
// the closed driver; it is the first that consists of numbers and dots.
func nvidiaVersion(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	for _, word := range strings.Fields(line) {
		if isVersion(word) {
			return word
		}
	}
	return "of unknown version"
}

func isVersion(word string) bool {
	return strings.Contains(word, ".") && strings.Trim(word, "0123456789.") == "" &&
		word[0] != '.' && word[len(word)-1] != '.'
}
