//go:build linux && cgo

package nvml

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// soname is installed by every driver since 2011. The name without ".1" comes with development packages only.
const soname = "libnvidia-ml.so.1"

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

// path returns a path of the machine as seen below Root.
func (o Options) path(p string) string { return filepath.Join("/", o.Root, p) }

// candidates returns the names to try, in order: only Library if it is set; else the name for the loader, then the
// files that exist in driver roots.
func (o Options) candidates() []string {
	if o.Library != "" {
		return []string{o.Library}
	}
	out := []string{soname}
	var seen []os.FileInfo
	for _, root := range o.roots() {
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

// roots returns the directories that candidates searches, each once.
func (o Options) roots() []string {
	all := slices.Clone(o.DriverRoots)
	for _, name := range rootVariables {
		if dir := o.Getenv(name); filepath.IsAbs(dir) {
			all = append(all, o.path(dir))
		}
	}
	for _, dir := range usualRoots {
		all = append(all, o.path(dir))
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
	if f, err := within(root, filepath.Join(dir, soname)); err == nil && isFile(f) {
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

// maxSymlinks is Linux's limit per path.
const maxSymlinks = 40

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
			if links++; links > maxSymlinks {
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

// problemOf returns why this process cannot load a file, or "". It does not check names without a slash, which the
// loader resolves. The loader's own messages do not help: it reports a library of another architecture as missing, and
// it maps a file that is shorter than its headers say, so that the process later gets SIGBUS.
func problemOf(path string) string {
	if !strings.Contains(path, "/") {
		return ""
	}
	f, err := os.Open(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "it does not exist"
	case errors.Is(err, os.ErrPermission):
		return fmt.Sprintf("no permission to read it (%s; this process is uid %d)", ownership(path), os.Geteuid())
	case err != nil:
		return err.Error()
	}
	defer func() { _ = f.Close() }() // only read
	st, err := f.Stat()
	switch {
	case err != nil:
		return err.Error()
	case st.IsDir():
		return "it is a directory; name the file in it, or give the directory as --nvml-driver-root"
	}
	lib, err := elf.NewFile(f)
	if err != nil { // for example, a section table beyond the end
		return "it is not a library (" + err.Error() + ")"
	}
	size := uint64(st.Size())
	beyond := func(offset, length uint64) bool { return offset > size || length > size-offset }
	want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[runtime.GOARCH]
	switch {
	case lib.Class != elf.ELFCLASS64:
		return fmt.Sprintf("it is a 32-bit library (%s), and this is a 64-bit process", lib.Machine)
	case want != elf.EM_NONE && lib.Machine != want:
		return fmt.Sprintf("it is a library for another processor (%s), and this process needs one for %s", lib.Machine, want)
	case lib.Type != elf.ET_DYN:
		return fmt.Sprintf("it is not a library (%s)", lib.Type)
	case slices.ContainsFunc(lib.Progs, func(p *elf.Prog) bool { return beyond(p.Off, p.Filesz) }),
		slices.ContainsFunc(lib.Sections, func(s *elf.Section) bool { return s.Type != elf.SHT_NOBITS && beyond(s.Offset, s.FileSize) }):
		return fmt.Sprintf("it is truncated: its headers describe more than the %d bytes that it has; install the driver again", size)
	}
	return ""
}
