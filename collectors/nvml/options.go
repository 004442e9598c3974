// Package nvml is the collector of NVIDIA GPUs through NVML, the library in NVIDIA's driver. It serves data centre
// GPUs without DCGM, GTX and RTX boards, workstations and WSL. It uses DCGM's field names and units, so that
// dashboards and alerts made for dcgm-exporter work without DCGM.
//
// On each tick all calls go through go-nvml: over a library whose calls take 20 to 200 µs, a batch in C took 0.9 to
// 1.2 times as long. Only two kinds of calls go by address: those that must run before go-nvml sees the library, and
// lists whose entries some drivers make longer than go-nvml expects (see entry.go). If a library, driver or device
// lacks something, only the readings that need it are missing.
//
// A process is bound to one NVML for its life, see binding. A process may open one Collector and one Processes at a
// time. The goroutine of a source makes all its calls, except those that may delay the sample (see background.go);
// Close waits for them.
package nvml

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
)

// Names of the collectors: the readings of GPUs, and the processes on them.
const (
	Name          = "nvml"
	ProcessesName = "nvml-processes"
)

// Options configures New and NewProcesses. The zero value searches the usual places.
type Options struct {
	// Library is the path or soname of the library, and the only one tried. "" searches the loader's path and then
	// the driver roots.
	Library string
	// DriverRoots are directories that hold a driver's files as "/" does on a host with the driver installed. They are
	// searched before the usual ones.
	DriverRoots []string
	// Root is the directory that holds /proc, /dev and the usual driver roots; "" means "/".
	Root string
	// Getenv reads the variables that name driver roots; nil means os.Getenv.
	Getenv func(string) string
	// Patience is how long Open and Rescan wait at most for the next GPU's answer; 0 means 5 s. If the other GPUs have
	// answered quickly, they wait a second, and 0.4 s for one that answers no call. The context's deadline bounds it.
	Patience time.Duration
	// Log may be nil, which disables logging.
	Log *zap.Logger
}

func (o Options) withDefaults(name string) Options {
	o.Patience = cmp.Or(o.Patience, 5*time.Second)
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	o.Log = cmp.Or(o.Log, zap.NewNop()).Named("nvml").With(zap.String("collector", name))
	return o
}

// Present reports whether the machine below root ("" for "/") seems to have an NVIDIA GPU or its driver: a device node,
// the driver's part of /proc, an NVIDIA display controller on the PCI bus, or the device of WSL or Tegra. It loads no
// library and opens no device.
func Present(root string) bool {
	for _, pattern := range []string{
		"/dev/nvidiactl", "/dev/nvidia[0-9]*", "/proc/driver/nvidia/version",
		"/dev/dxg",                        // WSL
		"/dev/nvhost-gpu", "/dev/nvgpu/*", // Tegra
	} {
		if found, _ := filepath.Glob(filepath.Join("/", root, pattern)); len(found) > 0 {
			return true
		}
	}
	const nvidia, display = "0x10de", "0x03"
	devices, _ := filepath.Glob(filepath.Join("/", root, "/sys/bus/pci/devices/*"))
	return slices.ContainsFunc(devices, func(d string) bool {
		return text(d, "vendor") == nvidia && strings.HasPrefix(text(d, "class"), display)
	})
}

// text returns the content of a small sysfs file, "" if it cannot be read.
func text(dir, name string) string {
	b, _ := os.ReadFile(filepath.Join(dir, name))
	return strings.TrimSpace(string(b))
}
