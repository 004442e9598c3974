// Package nvml is the collector of NVIDIA GPUs through NVML, the library that
// comes with NVIDIA's driver: data centre GPUs without DCGM, GTX and RTX boards,
// workstations, WSL. It gives DCGM's field names and units, so that dashboards
// and alerts made for dcgm-exporter work without DCGM.
//
// go-nvml serves what happens at discovery; what happens on each tick goes
// through a batch in C. A library, driver or device that lacks something costs
// the readings that need it and nothing more.
package nvml

import (
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"
)

// soname is what every driver since 2011 installs; the name without ".1" comes
// with development packages only.
const soname = "libnvidia-ml.so.1"

// Names of the collectors: what GPUs are and do, and the processes on them.
const (
	Name          = "nvml"
	ProcessesName = "nvml-processes"
)

// Options of New and NewProcesses. The zero value looks where drivers usually are.
type Options struct {
	// Library is the path or soname of the library. It is tried alone; "" looks
	// for it by the loader's path and then in driver roots.
	Library string
	// DriverRoots are directories that hold a driver's files as "/" does on a
	// host that has it installed. They come before the usual ones.
	DriverRoots []string
	// Root is where /proc, /dev and the usual driver roots are; "" means "/".
	Root string
	// Getenv reads the variables by which NVIDIA's components are told of driver
	// roots; nil means os.Getenv.
	Getenv func(string) string
	// Patience is how long Open and Rescan wait for GPUs that do not answer, from
	// the last one that did; 0 means 5 s. The context's deadline bounds it.
	Patience time.Duration
	// Log is nil to log nothing.
	Log *zap.Logger

	withoutLoader bool // of tests, which may run where a driver is installed
}

func (o Options) withDefaults(name string) Options {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	if o.Patience <= 0 {
		o.Patience = 5 * time.Second
	}
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	o.Log = o.Log.Named("nvml").With(zap.String("collector", name))
	return o
}

// path is a path of the machine as it is seen below Root.
func (o Options) path(p string) string { return filepath.Join("/", o.Root, p) }
