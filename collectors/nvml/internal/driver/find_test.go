package driver

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"warpgauge/internal/testkit/tree"

	"github.com/google/go-cmp/cmp"
)

func TestCandidates(t *testing.T) {
	f := func(o Host, files map[string]string, want ...string) {
		t.Helper()
		o.Root = tree.Write(t, files)
		if o.Getenv == nil {
			o.Getenv = noVariables
		}
		var got []string
		for _, c := range o.Candidates() {
			got = append(got, strings.TrimPrefix(c, o.Root))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("candidates of %v (-want +got):\n%s", files, diff)
		}
	}
	f(Host{Library: "/a/b.so"}, map[string]string{"usr/lib64/libnvidia-ml.so.1": ""}, "/a/b.so")
	f(Host{}, nil, Soname)
	// The GPU Operator's driver container, on RHEL.
	f(Host{}, map[string]string{
		"run/nvidia/driver/usr/lib64/libnvidia-ml.so.1":          "-> libnvidia-ml.so.550.54.15",
		"run/nvidia/driver/usr/lib64/libnvidia-ml.so.550.54.15":  "",
		"run/nvidia/driver/usr/lib64/libnvidia-ml.so.1.original": "",
	}, Soname, "/run/nvidia/driver/usr/lib64/libnvidia-ml.so.550.54.15")
	// GKE: on the node, and inside its containers.
	f(Host{}, map[string]string{"home/kubernetes/bin/nvidia/lib64/libnvidia-ml.so.1": ""},
		Soname, "/home/kubernetes/bin/nvidia/lib64/libnvidia-ml.so.1")
	f(Host{}, map[string]string{"usr/local/nvidia/lib64/libnvidia-ml.so.1": ""},
		Soname, "/usr/local/nvidia/lib64/libnvidia-ml.so.1")
	// WSL, NixOS, Talos with the host mounted, Flatcar.
	f(Host{}, map[string]string{"usr/lib/wsl/lib/libnvidia-ml.so.1": ""}, Soname, "/usr/lib/wsl/lib/libnvidia-ml.so.1")
	f(Host{}, map[string]string{
		"run/opengl-driver":                         "-> /nix/store/x-drivers",
		"nix/store/x-drivers/lib/libnvidia-ml.so.1": "",
	}, Soname, "/nix/store/x-drivers/lib/libnvidia-ml.so.1")
	f(Host{}, map[string]string{"host/usr/local/glibc/usr/lib/libnvidia-ml.so.1": ""},
		Soname, "/host/usr/local/glibc/usr/lib/libnvidia-ml.so.1")
	f(Host{}, map[string]string{"opt/nvidia/current": "-> 550/1", "opt/nvidia/550/1/lib64/libnvidia-ml.so.1": ""},
		Soname, "/opt/nvidia/550/1/lib64/libnvidia-ml.so.1")
	// No link: the newest version by number, not by spelling. A directory does not count.
	f(Host{}, map[string]string{
		"usr/lib64/libnvidia-ml.so.470.223.02": "", "usr/lib64/libnvidia-ml.so.550.9.1": "",
		"usr/lib64/libnvidia-ml.so.550.54.15": "", "usr/lib64/libnvidia-ml.so.999.1/": "", "usr/lib64/libnvidia-ml.so.1/": "",
	}, Soname, "/usr/lib64/libnvidia-ml.so.550.54.15")
	// A dangling link, as in a container where only the file was mounted.
	f(Host{}, map[string]string{
		"usr/lib64/libnvidia-ml.so.1": "-> libnvidia-ml.so.535.1", "usr/lib64/libnvidia-ml.so.535.2": "",
	}, Soname, "/usr/lib64/libnvidia-ml.so.535.2")
	// Absolute links start at the root: Debian's alternatives seen from a container.
	f(Host{}, map[string]string{
		"host/usr/lib64/libnvidia-ml.so.1":          "-> /etc/alternatives/nvml",
		"host/etc/alternatives/nvml":                "-> ../../../../drv/libnvidia-ml.so.1",
		"host/drv/libnvidia-ml.so.1":                "-> libnvidia-ml.so.560.35.03",
		"host/drv/libnvidia-ml.so.560.35.03":        "",
		"etc/alternatives/nvml":                     "not this one",
		"host/usr/lib/libnvidia-ml.so.1":            "-> libnvidia-ml.so.1",
		"host/usr/local/glibc/usr/lib/unrelated.so": "",
	}, Soname, "/host/drv/libnvidia-ml.so.560.35.03")
	// By variable; relative paths are ignored.
	f(Host{Getenv: func(name string) string {
		return map[string]string{"DRIVER_ROOT_CTR_PATH": "/d", "NVIDIA_DRIVER_ROOT": "e"}[name]
	}}, map[string]string{"d/usr/lib64/libnvidia-ml.so.1": "", "e/usr/lib64/libnvidia-ml.so.1": ""},
		Soname, "/d/usr/lib64/libnvidia-ml.so.1")
}

func TestDriverRootsComeFirst(t *testing.T) {
	mine := tree.Write(t, map[string]string{"libnvidia-ml.so.1": ""})
	o := Host{Roots: []string{mine + "/", mine}, Root: tree.Write(t, map[string]string{"usr/lib64/libnvidia-ml.so.1": ""}), Getenv: noVariables}
	want := []string{Soname, filepath.Join(mine, Soname), filepath.Join(o.Root, "usr/lib64", Soname)}
	if got := o.Candidates(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCompareVersions(t *testing.T) {
	f := func(a, b string, want int) {
		t.Helper()
		if got := compareVersions(a, b); got != want {
			t.Errorf("compareVersions(%q, %q) = %d, want %d", a, b, got, want)
		}
		if got := compareVersions(b, a); got != -want {
			t.Errorf("compareVersions(%q, %q) = %d, want %d", b, a, got, -want)
		}
	}
	f("550.54.15", "550.54.15", 0)
	f("550.9", "550.54.15", -1)
	f("550.54", "550.54.15", -1)
	f("99.1", "470.1", -1)
	f("550.a", "550.b", -1)
}

func noVariables(string) string { return "" }
