//go:build linux && cgo

package nvml

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sys/unix"

	"warpgauge/collectors/internal/dl"
	"warpgauge/pkg/collector"
)

// initError is an NVML that cannot be initialised.
type initError struct {
	error
	code nvml.Return
}

func (e *initError) Unwrap() error { return e.error }

// attempts collects the candidates that failed.
type attempts struct {
	decisive error    // of the first candidate that NVML itself rejected
	unusable []string // problems of the files that could not be loaded
}

// add records why a candidate failed. It reports whether the remaining candidates would fail, too. A missing driver
// fails them all. A stub (CUDA's toolkit has one) or a library of another driver version does not.
func (a *attempts) add(name string, err error) (last bool) {
	var init *initError
	var load *dl.OpenError
	switch {
	case err == nil:
		return true
	case errors.As(err, &init):
		other := init.code == nvml.ERROR_LIBRARY_NOT_FOUND || init.code == nvml.ERROR_LIB_RM_VERSION_MISMATCH || init.code == nvml.ERROR_FUNCTION_NOT_FOUND
		if a.decisive == nil || !other {
			a.decisive = err
		}
		return !other
	case errors.As(err, &load) && load.Absent():
	case errors.As(err, &load):
		a.unusable = append(a.unusable, unusable(name, loaderText(load)).Error())
	default:
		a.unusable = append(a.unusable, err.Error())
	}
	return false
}

// unusable names a file that this process cannot use as NVML.
func unusable(path, problem string) error { return errors.New(path + " cannot be used: " + problem) }

// loaderText returns the loader's message without the name that it repeats.
func loaderText(e *dl.OpenError) string {
	a := e.Attempts[len(e.Attempts)-1]
	text := strings.TrimPrefix(a.Text, a.Name+": ")
	if file, missing := strings.CutSuffix(text, ": cannot open shared object file: No such file or directory"); missing {
		return file + ", which it needs, is missing"
	}
	return text
}

// err returns the attempts, the findings and the remedy.
func (a *attempts) err(o Options) error {
	k := o.kernelDriver()
	switch {
	case a.decisive != nil:
		if len(a.unusable) > 0 {
			return fmt.Errorf("%w (also: %s)", a.decisive, strings.Join(a.unusable, "; "))
		}
		return a.decisive
	case len(a.unusable) > 0 && o.Library != "":
		return fmt.Errorf("%w: --nvml-library: %s; nothing else is tried; %s", collector.ErrNotLoaded, a.unusable[0], k.text())
	case len(a.unusable) > 0:
		return fmt.Errorf("%w: %s; %s", collector.ErrNotLoaded, strings.Join(a.unusable, "; "), k.text())
	case o.Library != "":
		return fmt.Errorf("%w: --nvml-library: the loader finds no %s; nothing else is tried; %s", collector.ErrNotLoaded, o.Library, k.text())
	}
	where := fmt.Sprintf("no %s, neither by the loader's path nor in %s", soname, strings.Join(slices.DeleteFunc(o.roots(), func(r string) bool { return !exists(r) }), ", "))
	advice := "; install the driver's libraries of the same version, or name them with --nvml-library or --nvml-driver-root"
	switch {
	case k.wsl:
		advice = ": install or update NVIDIA's driver there, and run wsl --update"
	case k.version == "":
		advice = "; on a node with NVIDIA GPUs install the driver"
	case k.inContainer():
		advice = "; " + giveDevices + "; or mount the driver's files and name them with --nvml-driver-root"
	}
	return fmt.Errorf("%w: %s; %s%s", collector.ErrNotLoaded, where, k.text(), advice)
}

// explain returns why NVML cannot be initialised. It checks for missing or forbidden files first, whatever NVML's code,
// and then reports NVML's answer. version is NVML's own.
func (o Options) explain(path, version string, code nvml.Return) error {
	k := o.kernelDriver()
	if code == nvml.ERROR_LIB_RM_VERSION_MISMATCH {
		return k.mismatch(path, version)
	}
	if text := k.noDriver(); text != "" {
		return fmt.Errorf("%w: library %s is there; %s [%w]", collector.ErrNotLoaded, path, text, code)
	}
	if text := k.noAccess(); text != "" {
		return fmt.Errorf("initialise NVML (%s): %s [%w]", path, text, code)
	}
	return fmt.Errorf("initialise NVML (%s): %w; %s; %s", path, code, k.text(), k.advice(code))
}

// mismatch returns an error that names the versions of library and kernel driver.
func (k kernelDriver) mismatch(path, version string) error {
	lib := libraryVersion(path, version)
	const unknown = "of unknown version"
	text := fmt.Sprintf("library %s is of driver %s, the loaded kernel driver is %s", path, cmp.Or(lib, unknown), cmp.Or(k.version, unknown))
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

// advice returns the advice for an NVML code when no file is missing or forbidden.
func (k kernelDriver) advice(code nvml.Return) string {
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

// kernelDriver is the state of the kernel driver.
type kernelDriver struct {
	o       Options
	version string // of the loaded driver, "" if none is visible
	proc    string // the file that shows it
	ctl     string // the control device
	wsl     bool   // Windows Subsystem for Linux: the driver is in Windows, behind /dev/dxg
}

// kernelDriver reads the state of the kernel driver.
func (o Options) kernelDriver() kernelDriver {
	k := kernelDriver{o: o, proc: o.path("/proc/driver/nvidia/version"), ctl: o.path("/dev/nvidiactl")}
	if text, err := os.ReadFile(k.proc); err == nil {
		k.version = kernelVersion(string(text))
	}
	k.wsl = exists(o.path("/dev/dxg"))
	return k
}

// text describes the kernel driver in a few words.
func (k kernelDriver) text() string {
	switch {
	case k.version != "":
		return "the kernel driver " + k.version + " is loaded"
	case k.wsl:
		return "this is WSL, whose driver is in Windows"
	}
	return "no kernel driver is loaded (" + k.proc + " is missing)"
}

// inContainer reports whether this process seems to run in a container. It only affects the advice.
func (k kernelDriver) inContainer() bool {
	marks := []string{"/.dockerenv", "/run/.containerenv", "/var/run/secrets/kubernetes.io"}
	return slices.ContainsFunc(marks, func(mark string) bool { return exists(k.o.path(mark)) }) ||
		k.o.Getenv("KUBERNETES_SERVICE_HOST") != "" || k.o.Getenv("NVIDIA_VISIBLE_DEVICES") != "" || k.o.Getenv("container") != ""
}

// giveDevices is the advice for a container without the devices.
const giveDevices = "start the container with NVIDIA's runtime or CDI (--gpus all, runtimeClassName: nvidia), " +
	"NVIDIA_VISIBLE_DEVICES=all and NVIDIA_DRIVER_CAPABILITIES=utility, or give it the /dev/nvidia* devices"

// noDriver explains that the kernel driver is missing; "" if it is loaded.
func (k kernelDriver) noDriver() string {
	switch {
	case k.version != "" || k.wsl:
		return ""
	case exists(k.ctl):
		return fmt.Sprintf("%s is there, but %s is not: the kernel driver was unloaded; load it (modprobe nvidia), or give the container the host's /proc", k.ctl, k.proc)
	}
	return fmt.Sprintf("the kernel driver is not loaded (%s is missing): load it (modprobe nvidia); "+
		"if that fails the kernel log says why, often a module that was not built for this kernel", k.proc)
}

// noAccess explains why this process cannot use the devices, "" if it can. It opens the control device briefly, as NVML
// does, because a container's device rules only show then.
func (k kernelDriver) noAccess() string {
	if k.wsl {
		if err := access(k.o.path("/dev/dxg")); err != nil {
			return k.refused(k.o.path("/dev/dxg"), err)
		}
		return ""
	}
	f, err := os.OpenFile(k.ctl, os.O_RDWR|syscall.O_CLOEXEC, 0)
	if err == nil {
		_ = f.Close()
		return k.refusedGPU()
	}
	if errors.Is(err, os.ErrNotExist) {
		if k.inContainer() {
			return fmt.Sprintf("the kernel driver %s is loaded, but this container has no %s: %s", k.version, k.ctl, giveDevices)
		}
		return fmt.Sprintf("the kernel driver %s is loaded, but there is no %s: run nvidia-modprobe (or nvidia-smi) once as root, or nvidia-persistenced at boot", k.version, k.ctl)
	}
	return k.refused(k.ctl, err)
}

// refusedGPU checks the GPUs' device nodes without opening them, which could initialise a GPU.
func (k kernelDriver) refusedGPU() string {
	entries, err := os.ReadDir(k.o.path("/dev"))
	if err != nil {
		return ""
	}
	for _, e := range entries {
		n, ok := strings.CutPrefix(e.Name(), "nvidia")
		if !ok || n == "" || strings.Trim(n, "0123456789") != "" {
			continue
		}
		node := k.o.path("/dev/" + e.Name())
		if err := access(node); err != nil {
			return k.refused(node, err)
		}
	}
	return ""
}

// refused names a device that cannot be opened, and the remedy.
func (k kernelDriver) refused(node string, err error) string {
	var number syscall.Errno
	if !errors.As(err, &number) {
		return fmt.Sprintf("%s cannot be opened: %v", node, err)
	}
	switch number {
	case syscall.EACCES:
		return fmt.Sprintf("no permission on %s (%s; this process is uid %d, gid %d): add its user to the device's group (often video or render), "+
			"make the device world-writable as NVIDIA's udev rules do (NVreg_DeviceFileMode=0666), or run as root", node, ownership(node), os.Geteuid(), os.Getegid())
	case syscall.EPERM:
		text := fmt.Sprintf("the device rules of this process's cgroup forbid %s (%s): ", node, ownership(node))
		if k.inContainer() {
			return text + giveDevices + "; if it worked before, systemd has reloaded and dropped the rules (https://github.com/NVIDIA/nvidia-container-toolkit/issues/48): restart the container"
		}
		return text + "allow it there (systemd: DeviceAllow=char-nvidia-frontend rw, or DevicePolicy=auto)"
	case syscall.ENXIO, syscall.ENODEV, syscall.EIO:
		return fmt.Sprintf("%s does not answer (%v): the driver is being loaded or unloaded, or the device was made for another one", node, number)
	}
	return fmt.Sprintf("%s cannot be opened: %v", node, number)
}

// access checks whether this process may read and write a file.
func access(path string) error {
	return unix.Faccessat(unix.AT_FDCWD, path, unix.R_OK|unix.W_OK, unix.AT_EACCESS)
}

func ownership(path string) string {
	st, err := os.Stat(path)
	if err != nil {
		return "its mode is unknown"
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return fmt.Sprintf("mode %04o, owner %d:%d", st.Mode().Perm(), sys.Uid, sys.Gid)
	}
	return fmt.Sprintf("mode %04o", st.Mode().Perm())
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// kernelVersion returns the driver's version from the first line of /proc/driver/nvidia/version: the first word of
// digits and dots. The words before it differ between the open and the closed driver.
func kernelVersion(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	for _, word := range strings.Fields(line) {
		if strings.Contains(word, ".") && strings.Trim(word, "0123456789.") == "" && word[0] != '.' && word[len(word)-1] != '.' {
			return word
		}
	}
	return "of unknown version"
}
