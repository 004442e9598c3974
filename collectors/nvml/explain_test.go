//go:build linux && cgo

package nvml

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sys/unix"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/programtest"
	"warpgauge/internal/testkit/tree"
	"warpgauge/pkg/collector"
)

// TestExplain compares the errors for NVML's codes and the machine's files, remedy included.
func TestExplain(t *testing.T) {
	f := func(code nvml.Return, files map[string]string, notLoaded bool, want ...string) {
		t.Helper()
		err := Options{Root: tree.Write(t, files), Getenv: noVariables}.explain("/x/libnvidia-ml.so.550.1", "12.550.2", code)
		testkit.ErrorIf(t, !errors.Is(err, code) || errors.Is(err, collector.ErrNotLoaded) != notLoaded, "got %v, want it to wrap %v, and ErrNotLoaded: %v", err, code, notLoaded)
		for _, w := range want {
			testkit.ErrorIf(t, !strings.Contains(err.Error(), w), "got %v, want it to say %q", err, w)
		}
	}
	loaded := map[string]string{"proc/driver/nvidia/version": loadedDriver, "dev/nvidiactl": ""}
	f(nvml.ERROR_LIB_RM_VERSION_MISMATCH, loaded, false, "is of driver 550.2", "the loaded kernel driver is 550.54.15", "reboot")
	f(nvml.ERROR_LIB_RM_VERSION_MISMATCH, map[string]string{".dockerenv": ""}, false, "is of unknown version", "restart it")
	f(nvml.ERROR_UNKNOWN, nil, true, "the kernel driver is not loaded")
	f(nvml.ERROR_UNKNOWN, map[string]string{"dev/nvidiactl": ""}, true, "nvidiactl is there, but ", "the kernel driver was unloaded")
	f(nvml.ERROR_UNKNOWN, map[string]string{"dev/dxg": ""}, false, "this is WSL")
	f(nvml.ERROR_NO_PERMISSION, loaded, false, "no permission to talk to the driver", "security modules")
	f(nvml.ERROR_OPERATING_SYSTEM, loaded, false, "block a device")
	f(nvml.ERROR_LIBRARY_NOT_FOUND, loaded, false, "this is a stub")
	f(nvml.ERROR_DRIVER_NOT_LOADED, loaded, false, "being loaded or unloaded")
	f(nvml.ERROR_RESET_REQUIRED, loaded, false, "reset the GPU")
	f(nvml.ERROR_UNKNOWN, loaded, false, "the kernel driver 550.54.15 is loaded; the kernel log may say more")
	f(nvml.ERROR_UNKNOWN, map[string]string{"proc/driver/nvidia/version": loadedDriver}, false, "there is no", "nvidia-modprobe")
}

// withoutRights runs f as a user without rights, on this thread only: the raw call affects no other thread. It skips
// the test if root cannot change the user, as in most namespaces.
func withoutRights(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		f()
		return
	}
	const unprivileged, same = 65534, ^uintptr(0)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	become := func(uid uintptr) syscall.Errno {
		_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, same, uid, same)
		return errno
	}
	if errno := become(unprivileged); errno != 0 {
		programtest.Missing(t, "setresuid", "become user %d: %v", unprivileged, errno)
	}
	defer func() {
		errno := become(0)
		testkit.ErrorIf(t, errno != 0, "become root again: %v", errno)
	}()
	f()
}

const loadedDriver = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n"

func TestNoAccess(t *testing.T) {
	f := func(files map[string]string, env string, modes map[string]os.FileMode, want ...string) {
		t.Helper()
		files["proc/driver/nvidia/version"] = loadedDriver
		o := Options{Root: tree.Write(t, files), Getenv: func(name string) string {
			if name == env {
				return "set"
			}
			return ""
		}}
		for dir := o.Root; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) { // for the other user
			_ = os.Chmod(dir, 0o755)
		}
		for _, dir := range []string{"proc", "proc/driver", "proc/driver/nvidia", "dev"} {
			_ = os.Chmod(filepath.Join(o.Root, dir), 0o755)
		}
		for name, mode := range modes {
			must(t, os.Chmod(filepath.Join(o.Root, name), mode))
		}
		var got string
		withoutRights(t, func() { got = strings.ReplaceAll(o.kernelDriver().noAccess(), o.Root, "") })
		testkit.ErrorIf(t, len(want) == 0 && got != "", "got %q, want that nothing is in the way", got)
		for _, w := range want {
			testkit.ErrorIf(t, !strings.Contains(got, w), "got %q, want it to say %q", got, w)
		}
	}
	all := map[string]os.FileMode{"dev/nvidiactl": 0o666}
	f(map[string]string{"dev/nvidiactl": ""}, "", all)
	f(map[string]string{}, "NVIDIA_VISIBLE_DEVICES", nil, "this container has no /dev/nvidiactl", "--gpus all", "runtimeClassName: nvidia")
	f(map[string]string{}, "", nil, "there is no /dev/nvidiactl", "nvidia-modprobe")
	f(map[string]string{"dev/nvidiactl": ""}, "", map[string]os.FileMode{"dev/nvidiactl": 0o600},
		"no permission on /dev/nvidiactl (mode 0600, owner 0:0", "this process is uid", "group", "NVreg_DeviceFileMode=0666")
	f(map[string]string{"dev/nvidiactl": "", "dev/nvidia0": "", "dev/nvidia1": "", "dev/nvidia-uvm": "", "dev/nvidiax": ""}, "",
		map[string]os.FileMode{"dev/nvidiactl": 0o666, "dev/nvidia0": 0o666, "dev/nvidia1": 0o600},
		"no permission on /dev/nvidia1 (mode 0600")
	f(map[string]string{"dev/nvidiactl": "-> none/of/that"}, "", nil, "there is no /dev/nvidiactl")
	f(map[string]string{"dev/nvidiactl/": ""}, "", nil, "/dev/nvidiactl cannot be opened: is a directory")
}

func TestRefused(t *testing.T) {
	f := func(number syscall.Errno, env string, want string) {
		t.Helper()
		o := Options{Root: tree.Write(t, map[string]string{"dev/nvidiactl": ""}), Getenv: func(name string) string { return map[string]string{env: "1"}[name] }}
		k := o.kernelDriver()
		got := k.refused(k.ctl, &os.PathError{Op: "open", Path: k.ctl, Err: number})
		testkit.ErrorIf(t, !strings.Contains(got, k.ctl) || !strings.Contains(got, want), "%v: got %q, want it to name the device and say %q", number, got, want)
	}
	f(syscall.EPERM, "container", "issues/48")
	f(syscall.EPERM, "", "DeviceAllow=char-nvidia-frontend rw")
	f(syscall.EACCES, "", fmt.Sprintf("uid %d, gid %d", os.Geteuid(), os.Getegid()))
	f(syscall.ENODEV, "", "the driver is being loaded or unloaded")
	f(syscall.EMFILE, "", "too many open files")
}

func TestKernelVersion(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		testkit.Equal(t, fmt.Sprintf("kernelVersion(%q)", text), want, kernelVersion(text))
	}
	f(loadedDriver, "550.54.15")
	f("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  560.35.03  Release Build\n", "560.35.03")
	f("NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.82", "470.82")
	f("something else", "of unknown version")
}
