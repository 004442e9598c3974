// Package nvml is the collector of NVIDIA GPUs through NVML, the library that
// comes with NVIDIA's driver: data centre GPUs without DCGM, GTX and RTX boards,
// workstations, WSL. It gives DCGM's field names and units, so that dashboards
// and alerts made for dcgm-exporter work without DCGM.
//
// All calls go through go-nvml, on each tick too: over a library whose calls take
// 20 to 200 µs, a batch in C took between 0.9 and 1.2 times its time. Called by
// address instead are what runs before go-nvml may see the library, and lists of
// processes, whose entries some drivers write longer than go-nvml's (see entry.go).
// A library, driver or device that lacks something costs the readings that need it
// and nothing more.
//
// A process is bound to one NVML for its life, see binding. At most one Collector
// and one Processes are open in a process at a time.
package nvml

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.uber.org/zap"

	"warpgauge/collectors/nvml/internal/driver"
)

// Names of the collectors: what GPUs are and do, and the processes on them.
const (
	Name          = "nvml"
	ProcessesName = "nvml-processes"
)

// Options of New and NewProcesses. The zero value searches where drivers usually are.
type Options struct {
	// Library is the path or soname of the library. It is tried alone; "" looks
	// for it by the loader's path and then in driver roots.
	Library string
	// DriverRoots are directories that hold a driver's files as "/" does on a
	// host that has it installed. They come before the usual ones.
	DriverRoots []string
	// Root is where /proc, /dev and the usual driver roots are; "" means "/".
	Root string
	// Getenv reads the variables that name driver roots; nil means os.Getenv.
	Getenv func(string) string
	// Patience is how long Open and Rescan wait for GPUs that do not answer, from
	// the last one that did; 0 means 5 s. The context's deadline bounds it.
	Patience time.Duration
	// Log is nil to log nothing.
	Log *zap.Logger

	withoutLoader bool // of tests, which may run where a driver is installed
}

func (o Options) withDefaults(name string) Options {
	if o.Patience <= 0 {
		o.Patience = 5 * time.Second
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	o.Log = o.Log.Named("nvml").With(zap.String("collector", name))
	return o
}

func (o Options) host() driver.Host {
	return driver.Host{Library: o.Library, Roots: o.DriverRoots, Root: o.Root, Getenv: o.Getenv, SkipLoader: o.withoutLoader}
}

// Present reports whether the machine below root, "" for "/", seems to have an
// NVIDIA GPU or its driver: a device node, the driver's part of /proc, a display
// controller of NVIDIA's on the PCI bus, WSL's or a Tegra's device. It loads no library and
// opens no device.
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
	for _, d := range devices {
		if text(d, "vendor") == nvidia && strings.HasPrefix(text(d, "class"), display) {
			return true
		}
	}
	return false
}

// text is a small file of sysfs, "" if there is none.
func text(dir, name string) string {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
