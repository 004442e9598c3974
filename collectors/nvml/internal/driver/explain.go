//go:build linux && cgo

package driver

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"warpgauge/collectors/internal/dl"
	"warpgauge/pkg/collector"
)

// UnusableError is a file that this process cannot use as NVML.
type UnusableError struct{ Path, Problem string }

func (e *UnusableError) Error() string { return e.Path + " cannot be used: " + e.Problem }

// InitError is an NVML that cannot be initialised.
type InitError struct {
	Code nvml.Return
	Err  error
}

func (e *InitError) Error() string { return e.Err.Error() }
func (e *InitError) Unwrap() error { return e.Err }

// Attempts collects the candidates that failed.
type Attempts struct {
	decisive error    // of the first candidate that NVML itself rejected
	unusable []string // problems of the files that could not be loaded
	absent   []string
}

// Add records why a candidate failed. It reports whether the remaining candidates would fail, too. A missing driver
// fails them all. A stub (CUDA's toolkit has one) or a library of another driver version does not.
func (a *Attempts) Add(name string, err error) (last bool) {
	var init *InitError
	var load *dl.OpenError
	switch {
	case err == nil:
		return true
	case errors.As(err, &init):
		other := init.Code == nvml.ERROR_LIBRARY_NOT_FOUND || init.Code == nvml.ERROR_LIB_RM_VERSION_MISMATCH || init.Code == nvml.ERROR_FUNCTION_NOT_FOUND
		if a.decisive == nil || !other {
			a.decisive = err
		}
		return !other
	case errors.As(err, &load) && load.Absent():
		a.absent = append(a.absent, name)
	case errors.As(err, &load):
		a.unusable = append(a.unusable, (&UnusableError{name, loaderText(load)}).Error())
	default:
		a.unusable = append(a.unusable, err.Error())
	}
	return false
}

// loaderText returns the loader's message without the name that it repeats.
func loaderText(e *dl.OpenError) string {
	a := e.Attempts[len(e.Attempts)-1]
	text := strings.TrimPrefix(a.Text, a.Name+": ")
	if file, missing := strings.CutSuffix(text, ": cannot open shared object file: No such file or directory"); missing {
		return file + ", which it needs, is missing"
	}
	return text
}

// Err returns the attempts, the findings and the remedy.
func (a *Attempts) Err(h Host) error {
	k := h.Kernel()
	switch {
	case a.decisive != nil:
		if len(a.unusable) > 0 {
			return fmt.Errorf("%w (also: %s)", a.decisive, strings.Join(a.unusable, "; "))
		}
		return a.decisive
	case len(a.unusable) > 0 && h.Library != "":
		return fmt.Errorf("%w: --nvml-library: %s; nothing else is tried; %s", collector.ErrNotLoaded, a.unusable[0], k.Text())
	case len(a.unusable) > 0:
		return fmt.Errorf("%w: %s; %s", collector.ErrNotLoaded, strings.Join(a.unusable, "; "), k.Text())
	case h.Library != "":
		return fmt.Errorf("%w: --nvml-library: the loader finds no %s; nothing else is tried; %s", collector.ErrNotLoaded, h.Library, k.Text())
	}
	where := fmt.Sprintf("no %s, neither by the loader's path nor in %s", Soname, strings.Join(slices.DeleteFunc(h.roots(), func(r string) bool { return !exists(r) }), ", "))
	switch {
	case k.wsl:
		return fmt.Errorf("%w: %s; %s: install or update NVIDIA's driver there, and run wsl --update", collector.ErrNotLoaded, where, k.Text())
	case k.Version == "":
		return fmt.Errorf("%w: %s; %s; on a node with NVIDIA GPUs install the driver", collector.ErrNotLoaded, where, k.Text())
	case k.inContainer():
		return fmt.Errorf("%w: %s; %s; %s; or mount the driver's files and name them with --nvml-driver-root", collector.ErrNotLoaded, where, k.Text(), giveDevices)
	}
	return fmt.Errorf("%w: %s; %s; install the driver's libraries of the same version, or name them with --nvml-library or --nvml-driver-root",
		collector.ErrNotLoaded, where, k.Text())
}

// Explain returns why NVML cannot be initialised. It checks for missing or forbidden files first, whatever NVML's code,
// and then reports NVML's answer. version is NVML's own.
func (h Host) Explain(path, version string, code nvml.Return) error {
	k := h.Kernel()
	if code == nvml.ERROR_LIB_RM_VERSION_MISMATCH {
		return k.mismatch(path, version)
	}
	if text := k.noDriver(); text != "" {
		return fmt.Errorf("%w: library %s is there; %s [%w]", collector.ErrNotLoaded, path, text, code)
	}
	if text := k.NoAccess(); text != "" {
		return fmt.Errorf("initialise NVML (%s): %s [%w]", path, text, code)
	}
	return fmt.Errorf("initialise NVML (%s): %w; %s; %s", path, code, k.Text(), k.Advice(code))
}

// mismatch returns an error that names the versions of library and kernel driver.
func (k Kernel) mismatch(path, version string) error {
	lib := libraryVersion(path, version)
	const unknown = "of unknown version"
	text := fmt.Sprintf("library %s is of driver %s, the loaded kernel driver is %s", path, cmp.Or(lib, unknown), cmp.Or(k.Version, unknown))
	advice := "the driver was upgraded and is still running in its old version: unload and load its modules, or reboot"
	if k.inContainer() {
		advice += "; if this container brings or keeps another library, restart it, or take the host's driver with --nvml-driver-root"
	}
	return fmt.Errorf("initialise NVML: %s: %s [%w]", text, advice, nvml.ERROR_LIB_RM_VERSION_MISMATCH)
}

// libraryVersion returns the driver version of a library: from the name of its file, else from NVML's own version
// ("12.550.54.15") after CUDA's part.
func libraryVersion(path, version string) string {
	if file, err := filepath.EvalSymlinks(path); err == nil {
		if v, ok := strings.CutPrefix(filepath.Base(file), "libnvidia-ml.so."); ok && strings.Contains(v, ".") {
			return v
		}
	}
	if _, v, ok := strings.Cut(version, "."); ok {
		return v
	}
	return version
}

// Advice returns the advice for an NVML code when no file is missing or forbidden.
func (k Kernel) Advice(code nvml.Return) string {
	switch code {
	case nvml.ERROR_NO_PERMISSION:
		return fmt.Sprintf("no permission to talk to the driver (this process is uid %d): the devices may be opened, so look for security modules in the kernel log", os.Geteuid())
	case nvml.ERROR_OPERATING_SYSTEM:
		return "the operating system or its cgroups block a device: " + giveDevices
	case nvml.ERROR_LIBRARY_NOT_FOUND:
		return "this is a stub, or it misses a part of the driver: use the library that the driver has installed"
	case nvml.ERROR_DRIVER_NOT_LOADED:
		return "the driver is being loaded or unloaded"
	case nvml.ERROR_GPU_IS_LOST, nvml.ERROR_IRQ_ISSUE, nvml.ERROR_RESET_REQUIRED, nvml.ERROR_INSUFFICIENT_POWER:
		return "the kernel log has an XID for it; reset the GPU or reboot"
	}
	return "the kernel log may say more"
}
