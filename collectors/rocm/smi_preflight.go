package rocm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// preflightSMI looks for what makes rsmi_init of a library with asserts end the
// process: it takes for granted what a driver that is just loading, a container
// with half of /sys or a broken node does not have. sys is the /sys directory.
func preflightSMI(sys string) error {
	nodes := filepath.Join(sys, "class/kfd/kfd/topology/nodes")
	entries, err := os.ReadDir(nodes)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look at /sys before rsmi_init: %w", err)
	}
	for _, e := range entries {
		if _, err := strconv.ParseUint(e.Name(), 10, 31); err != nil {
			continue
		}
		// The directory must be there for processors, too.
		if _, err := os.ReadDir(filepath.Join(nodes, e.Name(), "io_links")); err != nil {
			return fmt.Errorf("look at /sys before rsmi_init: %w", err)
		}
	}
	cards, err := filepath.Glob(filepath.Join(sys, "class/drm/card*"))
	if err != nil {
		return fmt.Errorf("look at /sys before rsmi_init: %w", err)
	}
	const room = 256 // of the library's readlink
	for _, c := range cards {
		if strings.Contains(filepath.Base(c), "-") {
			continue // a connector
		}
		target, err := os.Readlink(c)
		if err != nil {
			return fmt.Errorf("look at /sys before rsmi_init: %w", err)
		}
		if len(target) >= room {
			return fmt.Errorf("look at /sys before rsmi_init: the target of %q is too long", c)
		}
	}
	// Absent is well, anything else but present is not.
	_, err = os.Stat(filepath.Join(sys, "bus/event_source/devices/amdgpu_0"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look at /sys before rsmi_init: %w", err)
	}
	return nil
}

// monitorOf returns the directory of a GPU's sensors, "" where it has none.
// Some versions follow a null pointer when asked for a sensor of such a GPU.
func monitorOf(sys, pci string) string {
	names, err := filepath.Glob(filepath.Join(sys, "bus/pci/devices", pci, "hwmon/hwmon*/name"))
	if err != nil {
		return ""
	}
	for _, n := range names {
		if text, err := os.ReadFile(n); err == nil && strings.TrimSpace(string(text)) == "amdgpu" {
			return filepath.Dir(n)
		}
	}
	return ""
}
