// Package probe finds the kernel driver of a vendor in the file tree of a machine. It loads
// nothing. No state, no goroutines.
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
