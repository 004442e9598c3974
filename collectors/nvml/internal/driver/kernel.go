package driver

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Kernel is the state of the kernel driver.
type Kernel struct {
	h       Host
	Version string // of the loaded driver, "" if none is visible
	proc    string // the file that shows it
	ctl     string // the control device
	wsl     bool   // Windows Subsystem for Linux: the driver is in Windows, behind /dev/dxg
}

// Kernel reads the state of the kernel driver.
func (h Host) Kernel() Kernel {
	k := Kernel{h: h, proc: h.path("/proc/driver/nvidia/version"), ctl: h.path("/dev/nvidiactl")}
	if text, err := os.ReadFile(k.proc); err == nil {
		k.Version = kernelVersion(string(text))
	}
	k.wsl = exists(h.path("/dev/dxg"))
	return k
}

// Text describes the kernel driver in a few words.
func (k Kernel) Text() string {
	switch {
	case k.Version != "":
		return "the kernel driver " + k.Version + " is loaded"
	case k.wsl:
		return "this is WSL, whose driver is in Windows"
	}
	return "no kernel driver is loaded (" + k.proc + " is missing)"
}

// inContainer reports whether this process seems to run in a container. It only affects the advice.
func (k Kernel) inContainer() bool {
	for _, mark := range []string{"/.dockerenv", "/run/.containerenv", "/var/run/secrets/kubernetes.io"} {
		if exists(k.h.path(mark)) {
			return true
		}
	}
	return k.h.Getenv("KUBERNETES_SERVICE_HOST") != "" || k.h.Getenv("NVIDIA_VISIBLE_DEVICES") != "" || k.h.Getenv("container") != ""
}

// giveDevices is the advice for a container without the devices.
const giveDevices = "start the container with NVIDIA's runtime or CDI (--gpus all, runtimeClassName: nvidia), " +
	"NVIDIA_VISIBLE_DEVICES=all and NVIDIA_DRIVER_CAPABILITIES=utility, or give it the /dev/nvidia* devices"

// noDriver explains that the kernel driver is missing; "" if it is loaded.
func (k Kernel) noDriver() string {
	switch {
	case k.Version != "" || k.wsl:
		return ""
	case exists(k.ctl):
		return fmt.Sprintf("%s is there, but %s is not: the kernel driver was unloaded; load it (modprobe nvidia), or give the container the host's /proc", k.ctl, k.proc)
	}
	return fmt.Sprintf("the kernel driver is not loaded (%s is missing): load it (modprobe nvidia); "+
		"if that fails the kernel log says why, often a module that was not built for this kernel", k.proc)
}

// NoAccess explains why this process cannot use the devices, "" if it can. It opens the control device briefly, as NVML
// does, because a container's device rules only show then.
func (k Kernel) NoAccess() string {
	if k.wsl {
		if err := access(k.h.path("/dev/dxg")); err != nil {
			return k.refused(k.h.path("/dev/dxg"), err)
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
			return fmt.Sprintf("the kernel driver %s is loaded, but this container has no %s: %s", k.Version, k.ctl, giveDevices)
		}
		return fmt.Sprintf("the kernel driver %s is loaded, but there is no %s: run nvidia-modprobe (or nvidia-smi) once as root, or nvidia-persistenced at boot", k.Version, k.ctl)
	}
	return k.refused(k.ctl, err)
}

// refusedGPU checks the GPUs' device nodes without opening them, which could initialise a GPU.
func (k Kernel) refusedGPU() string {
	entries, err := os.ReadDir(k.h.path("/dev"))
	if err != nil {
		return ""
	}
	for _, e := range entries {
		n, ok := strings.CutPrefix(e.Name(), "nvidia")
		if !ok || n == "" || strings.Trim(n, "0123456789") != "" {
			continue
		}
		node := k.h.path("/dev/" + e.Name())
		if err := access(node); err != nil {
			return k.refused(node, err)
		}
	}
	return ""
}

// refused names a device that cannot be opened, and the remedy.
func (k Kernel) refused(node string, err error) string {
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
