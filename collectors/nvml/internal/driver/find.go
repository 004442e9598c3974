// Package driver finds NVML, the library of NVIDIA's driver, and explains why it cannot be used and how to repair that.
// collectors/nvml calls it in Open. It loads nothing, keeps no state and starts no goroutine.
package driver

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Soname is installed by every driver since 2011. The name without ".1" comes with development packages only.
const Soname = "libnvidia-ml.so.1"

// usualRoots are the directories that may hold a driver's files as "/" does. See DRIVER_ROOT_CTR_PATH in
// https://github.com/NVIDIA/k8s-device-plugin and https://github.com/NVIDIA/mig-parted.
var usualRoots = [...]string{
	"/",
	"/run/nvidia/driver",    // the GPU Operator's driver container
	"/driver-root", "/host", // that container and the host, inside the operator's other components
	"/usr/local/nvidia",           // containers of GKE with Container-Optimized OS
	"/home/kubernetes/bin/nvidia", // nodes of GKE
	"/opt/nvidia/current",         // Flatcar
}

// rootVariables name a driver root for NVIDIA's components. The first is a path in the container, the second a path on
// the host, which exists in a container only if it is mounted at the same path.
var rootVariables = [...]string{"DRIVER_ROOT_CTR_PATH", "NVIDIA_DRIVER_ROOT"}

// libraryDirs returns the directories below a root that may hold the library: those in which NVIDIA's DRA driver looks
// (cmd/gpu-kubelet-plugin/root.go in https://github.com/NVIDIA/k8s-dra-driver-gpu), and those of Debian's alternatives,
// NixOS, WSL and Talos.
func libraryDirs() []string {
	triplet := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[runtime.GOARCH]
	dirs := []string{"usr/lib64", "usr/lib", "lib64", "lib", "."}
	if triplet != "" {
		dirs = slices.Concat([]string{
			"usr/lib/" + triplet, "usr/lib/" + triplet + "/nvidia/current", "lib/" + triplet,
		}, dirs)
	}
	return append(dirs,
		"run/opengl-driver/lib",    // NixOS
		"usr/lib/wsl/lib",          // WSL: the Windows driver's
		"usr/local/glibc/usr/lib",  // Talos
		"opt/nvidia/current/lib64", // Flatcar, where the root is the host's
		"home/kubernetes/bin/nvidia/lib64",
		"usr/lib/nvidia", "usr/lib64/nvidia",
	)
}

// Host is the machine that is searched, see nvml.Options.
type Host struct {
	Library string // if set, the only candidate
	Roots   []string
	Root    string
	Getenv  func(string) string
}

// path returns a path of the machine as seen below Root.
func (h Host) path(p string) string { return filepath.Join("/", h.Root, p) }

// Candidates returns the names to try, in order: only Library if it is set; else the name for the loader, then the
// files that exist in driver roots.
func (h Host) Candidates() []string {
	if h.Library != "" {
		return []string{h.Library}
	}
	out := []string{Soname}
	var seen []os.FileInfo
	for _, root := range h.roots() {
		for _, dir := range libraryDirs() {
			f := findLibrary(root, dir)
			st, err := os.Stat(f)
			if err != nil || slices.ContainsFunc(seen, func(s os.FileInfo) bool { return os.SameFile(s, st) }) {
				continue
			}
			seen, out = append(seen, st), append(out, f)
		}
	}
	return out
}

// roots returns the directories that Candidates searches, each once.
func (h Host) roots() []string {
	all := slices.Clone(h.Roots)
	for _, name := range rootVariables {
		if dir := h.Getenv(name); filepath.IsAbs(dir) {
			all = append(all, h.path(dir))
		}
	}
	for _, dir := range usualRoots {
		all = append(all, h.path(dir))
	}
	var out []string
	for _, dir := range all {
		if dir = filepath.Clean(dir); !slices.Contains(out, dir) {
			out = append(out, dir)
		}
	}
	return out
}

// findLibrary returns the library's file in a directory below root, or "". If the link libnvidia-ml.so.1 is missing or
// broken, it returns the file of the newest version: a driver that is mounted file by file lacks the link.
func findLibrary(root, dir string) string {
	if f, err := within(root, filepath.Join(dir, Soname)); err == nil && isFile(f) {
		return f
	}
	at, err := within(root, dir)
	if err != nil {
		return ""
	}
	entries, err := os.ReadDir(at)
	if err != nil {
		return ""
	}
	var found []string
	for _, e := range entries {
		version, ok := strings.CutPrefix(e.Name(), "libnvidia-ml.so.")
		if ok && strings.Contains(version, ".") && isFile(filepath.Join(at, e.Name())) {
			found = append(found, version)
		}
	}
	if len(found) == 0 {
		return ""
	}
	return filepath.Join(at, "libnvidia-ml.so."+slices.MaxFunc(found, compareVersions))
}

// maxLinks is Linux's limit per path.
const maxLinks = 40

// within resolves path below root like chroot: an absolute link starts at root, and no link leads out of it.
func within(root, path string) (string, error) {
	at, rest := "/", split(path)
	for links := 0; len(rest) > 0; {
		name := filepath.Join(at, rest[0])
		rest = rest[1:]
		target, err := os.Readlink(filepath.Join(root, name))
		switch {
		case errors.Is(err, syscall.EINVAL): // not a link
			at = name
		case err != nil:
			return "", err
		default:
			if links++; links > maxLinks {
				return "", &os.PathError{Op: "resolve", Path: filepath.Join(root, path), Err: syscall.ELOOP}
			}
			if filepath.IsAbs(target) {
				at = "/"
			}
			rest = append(split(target), rest...)
		}
	}
	return filepath.Join(root, at), nil
}

func split(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(s string) bool { return s == "" || s == "." })
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

// compareVersions compares versions such as "550.54.15" by their numbers.
func compareVersions(a, b string) int {
	return slices.CompareFunc(strings.Split(a, "."), strings.Split(b, "."), func(a, b string) int {
		m, errA := strconv.Atoi(a)
		n, errB := strconv.Atoi(b)
		if errA != nil || errB != nil {
			return cmp.Compare(a, b)
		}
		return cmp.Compare(m, n)
	})
}
