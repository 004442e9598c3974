//go:build linux && cgo

package nvml

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"warpgauge/internal/testkit"
	"warpgauge/internal/testkit/tree"
)

func TestCandidates(t *testing.T) {
	f := func(o Options, files map[string]string, want ...string) {
		t.Helper()
		o.Root = tree.Write(t, files)
		if o.Getenv == nil {
			o.Getenv = noVariables
		}
		var got []string
		for _, c := range o.candidates() {
			got = append(got, strings.TrimPrefix(c, o.Root))
		}
		testkit.Equal(t, fmt.Sprintf("candidates of %v", files), want, got)
	}
	f(Options{Library: "/a/b.so"}, map[string]string{"usr/lib64/libnvidia-ml.so.1": ""}, "/a/b.so")
	f(Options{}, nil, soname)
	// The GPU Operator's driver container, on RHEL.
	f(Options{}, map[string]string{
		"run/nvidia/driver/usr/lib64/libnvidia-ml.so.1":          "-> libnvidia-ml.so.550.54.15",
		"run/nvidia/driver/usr/lib64/libnvidia-ml.so.550.54.15":  "",
		"run/nvidia/driver/usr/lib64/libnvidia-ml.so.1.original": "",
	}, soname, "/run/nvidia/driver/usr/lib64/libnvidia-ml.so.550.54.15")
	// GKE: on the node, and inside its containers.
	f(Options{}, map[string]string{"home/kubernetes/bin/nvidia/lib64/libnvidia-ml.so.1": ""},
		soname, "/home/kubernetes/bin/nvidia/lib64/libnvidia-ml.so.1")
	f(Options{}, map[string]string{"usr/local/nvidia/lib64/libnvidia-ml.so.1": ""},
		soname, "/usr/local/nvidia/lib64/libnvidia-ml.so.1")
	// WSL, NixOS, Talos with the host mounted, Flatcar.
	f(Options{}, map[string]string{"usr/lib/wsl/lib/libnvidia-ml.so.1": ""}, soname, "/usr/lib/wsl/lib/libnvidia-ml.so.1")
	f(Options{}, map[string]string{
		"run/opengl-driver":                         "-> /nix/store/x-drivers",
		"nix/store/x-drivers/lib/libnvidia-ml.so.1": "",
	}, soname, "/nix/store/x-drivers/lib/libnvidia-ml.so.1")
	f(Options{}, map[string]string{"host/usr/local/glibc/usr/lib/libnvidia-ml.so.1": ""},
		soname, "/host/usr/local/glibc/usr/lib/libnvidia-ml.so.1")
	f(Options{}, map[string]string{"opt/nvidia/current": "-> 550/1", "opt/nvidia/550/1/lib64/libnvidia-ml.so.1": ""},
		soname, "/opt/nvidia/550/1/lib64/libnvidia-ml.so.1")
	// No link: the newest version by number, not by spelling. A directory does not count.
	f(Options{}, map[string]string{
		"usr/lib64/libnvidia-ml.so.470.223.02": "", "usr/lib64/libnvidia-ml.so.550.9.1": "",
		"usr/lib64/libnvidia-ml.so.550.54.15": "", "usr/lib64/libnvidia-ml.so.999.1/": "", "usr/lib64/libnvidia-ml.so.1/": "",
	}, soname, "/usr/lib64/libnvidia-ml.so.550.54.15")
	// A dangling link, as in a container where only the file was mounted.
	f(Options{}, map[string]string{
		"usr/lib64/libnvidia-ml.so.1": "-> libnvidia-ml.so.535.1", "usr/lib64/libnvidia-ml.so.535.2": "",
	}, soname, "/usr/lib64/libnvidia-ml.so.535.2")
	// Absolute links start at the root: Debian's alternatives seen from a container.
	f(Options{}, map[string]string{
		"host/usr/lib64/libnvidia-ml.so.1":          "-> /etc/alternatives/nvml",
		"host/etc/alternatives/nvml":                "-> ../../../../drv/libnvidia-ml.so.1",
		"host/drv/libnvidia-ml.so.1":                "-> libnvidia-ml.so.560.35.03",
		"host/drv/libnvidia-ml.so.560.35.03":        "",
		"etc/alternatives/nvml":                     "not this one",
		"host/usr/lib/libnvidia-ml.so.1":            "-> libnvidia-ml.so.1",
		"host/usr/local/glibc/usr/lib/unrelated.so": "",
	}, soname, "/host/drv/libnvidia-ml.so.560.35.03")
	// By variable; relative paths are ignored.
	f(Options{Getenv: func(name string) string {
		return map[string]string{"DRIVER_ROOT_CTR_PATH": "/d", "NVIDIA_DRIVER_ROOT": "e"}[name]
	}}, map[string]string{"d/usr/lib64/libnvidia-ml.so.1": "", "e/usr/lib64/libnvidia-ml.so.1": ""},
		soname, "/d/usr/lib64/libnvidia-ml.so.1")
}

func TestDriverRootsComeFirst(t *testing.T) {
	mine := tree.Write(t, map[string]string{"libnvidia-ml.so.1": ""})
	o := Options{DriverRoots: []string{mine + "/", mine}, Root: tree.Write(t, map[string]string{"usr/lib64/libnvidia-ml.so.1": ""}), Getenv: noVariables}
	want := []string{soname, filepath.Join(mine, soname), filepath.Join(o.Root, "usr/lib64", soname)}
	got := o.candidates()
	testkit.ErrorIf(t, !slices.Equal(got, want), "got %q, want %q", got, want)
}

// elfHeader returns the beginning of a file with a class, a machine and a type.
func elfHeader(t *testing.T, class elf.Class, machine elf.Machine, typ elf.Type) string {
	t.Helper()
	var b bytes.Buffer
	ident := [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(class), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)}
	var header any = elf.Header64{Ident: ident, Type: uint16(typ), Machine: uint16(machine), Version: 1, Ehsize: 64, Phentsize: 56, Shentsize: 64}
	if class == elf.ELFCLASS32 {
		header = elf.Header32{Ident: ident, Type: uint16(typ), Machine: uint16(machine), Version: 1, Ehsize: 52, Phentsize: 32, Shentsize: 40}
	}
	must(t, binary.Write(&b, binary.LittleEndian, header))
	return b.String()
}

func TestELFproblemOf(t *testing.T) {
	ours, theirs := elf.EM_X86_64, elf.EM_AARCH64
	if runtime.GOARCH == "arm64" {
		ours, theirs = theirs, ours
	}
	root := tree.Write(t, map[string]string{
		"good":   elfHeader(t, elf.ELFCLASS64, ours, elf.ET_DYN),
		"small":  elfHeader(t, elf.ELFCLASS32, elf.EM_386, elf.ET_DYN),
		"other":  elfHeader(t, elf.ELFCLASS64, theirs, elf.ET_DYN),
		"object": elfHeader(t, elf.ELFCLASS64, ours, elf.ET_REL),
		"text":   "INPUT(libnvidia-ml.so.1)\n",
		"empty":  "",
		"dir/":   "",
	})
	f := func(name, want string) {
		t.Helper()
		got := problemOf(filepath.Join(root, name))
		testkit.ErrorIf(t, want == "" && got != "" || !strings.Contains(got, want), "%s: got %q, want %q", name, got, want)
	}
	f("good", "")
	f("small", "it is a 32-bit library (EM_386), and this is a 64-bit process")
	f("other", "it is a library for another processor ("+theirs.String()+")")
	f("object", "it is not a library (ET_REL)")
	f("text", "it is not a library (bad magic number")
	f("empty", "it is not a library (EOF)")
	f("dir", "--nvml-driver-root")
	f("nothing", "it does not exist")
	testkit.Equal(t, "problem of a name that the loader looks up", "", problemOf(soname))
	// The first part of a library is not one.
	text := testkit.Get(os.ReadFile(libc(t)))(t)
	for _, size := range []int{len(text), len(text) / 2, len(text) - 1, 4096, 64, 10} {
		must(t, os.WriteFile(filepath.Join(root, "part"), text[:size], 0o600))
		got := problemOf(filepath.Join(root, "part"))
		testkit.ErrorIf(t, (got == "") != (size == len(text)), "%d of %d bytes: %q", size, len(text), got)
	}
}
