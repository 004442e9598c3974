//go:build linux && cgo

package dcgm

import (
	"errors"
	"fmt"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/dl"
)

// open loads and initialises the library. An error says what was looked for and
// what to do.
func open(o Options) (*library, error) {
	lib, err := load(o.candidates())
	var attempts *dl.OpenError
	switch {
	case errors.As(err, &attempts) && attempts.Absent():
		return nil, fmt.Errorf("%w: no %s by the loader's path or where packages put it; install datacenter-gpu-manager-4-core (or name it with --dcgm-library); NVML serves the GPUs meanwhile",
			collector.ErrNotLoaded, soname)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", collector.ErrNotLoaded, err)
	}
	if err := lib.init(); err != nil {
		path := lib.path()
		lib.close()
		return nil, fmt.Errorf("%w: initialise %s: %w", collector.ErrNotLoaded, path, err)
	}
	return lib, nil
}

// explain adds to an error of the first contact with an engine what to do.
func explain(o Options, err error) error {
	var s status
	if !errors.As(err, &s) {
		return err
	}
	var advice string
	switch {
	case s == statusVersion:
		advice = "update the older of library and host engine"
	case s == statusNoSymbol:
		advice = "update the library"
	case o.Engine != "":
		advice = "start nv-hostengine there (systemctl start nvidia-dcgm), or correct --remote-hostengine-info"
	case s == statusNoNVML, s == statusInitError:
		advice = "load NVIDIA's driver; where another process runs a host engine, use it with --remote-hostengine-info"
	default:
		return fmt.Errorf("%w: %w", collector.ErrNotLoaded, err)
	}
	return fmt.Errorf("%w: %w: %s", collector.ErrNotLoaded, err, advice)
}
