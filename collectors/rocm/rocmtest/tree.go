// Package rocmtest simulates the files that the collector of AMD GPUs reads: a Tree is a directory that looks like the /sys
// of a node. Tests change, break and compare its values. It needs no privileges. Production does not use it.
//
// Card numbers, PCI addresses, KFD ids and render minors all differ, so that tests
// detect a reader that confuses them. card0 is the display of a BMC.
package rocmtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"warpgauge/internal/testkit"
)

var must = testkit.Must

// Tree is a simulated /sys.
type Tree struct {
	Root string // holds sys/, like a root directory
	GPUs []*GPU // in order of PCI address

	o Options
}

// NewTree makes a tree in a temporary directory of the test.
func NewTree(tb testing.TB, o Options) *Tree {
	tb.Helper()
	t, err := Build(memoryDir(tb), o)
	must(tb, err)
	return t
}

// memoryDir returns a temporary directory of the test, in memory if possible, because a
// tree has hundreds of files, and tests make thousands of trees.
func memoryDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "rocmtest-") //nolint:usetesting // TempDir is on a disk
	if err != nil {
		return tb.TempDir()
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	return dir
}

// Build makes a tree in dir/sys.
func Build(dir string, o Options) (*Tree, error) {
	if o.GPUs == 0 {
		o.GPUs = 2
	}
	t := &Tree{Root: dir, o: o}
	m := o.Model.spec()
	if o.Metrics != "" {
		m.metrics = o.Metrics
	}
	if err := o.check(&m); err != nil {
		return nil, fmt.Errorf("build tree %q: %w", dir, err)
	}
	for i := range o.GPUs {
		t.GPUs = append(t.GPUs, newGPU(t, m, i))
	}
	if err := t.build(); err != nil {
		return nil, fmt.Errorf("build tree %q: %w", dir, err)
	}
	return t, nil
}

// Sys returns the directory that replaces /sys.
func (t *Tree) Sys() string { return filepath.Join(t.Root, "sys") }

// Path returns the file for a path below /sys.
func (t *Tree) Path(name string) string { return filepath.Join(t.Sys(), name) }

// Step advances the values of every GPU by d.
func (t *Tree) Step(tb testing.TB, d time.Duration) {
	tb.Helper()
	must(tb, t.StepBy(d))
}

// StepBy is Step for a program. If it cannot write the files of a GPU, it still advances the others.
func (t *Tree) StepBy(d time.Duration) error {
	var errs []error
	for _, g := range t.GPUs {
		g.State = g.State.moved(g.spec, g.Index, d)
		errs = append(errs, g.write())
	}
	return errors.Join(errs...)
}

func (t *Tree) build() error {
	if err := t.host(); err != nil {
		return err
	}
	for _, g := range t.GPUs {
		if err := g.build(); err != nil {
			return err
		}
	}
	return nil
}

// host writes the files that do not belong to a GPU: the driver's, the display of a BMC, and KFD's with two processor nodes.
func (t *Tree) host() error {
	dirs := []string{"class/drm", "class/hwmon", "bus/pci/devices", "bus/pci/drivers/amdgpu", "devices/platform"}
	files := map[string][]string{"module/amdgpu/version": {"6.8.5"}, "module/amdgpu/initstate": {"live"}}
	links := map[string]string{} // name → target
	if !t.o.NoKFD {
		const kfd = "devices/virtual/kfd/kfd"
		dirs = append(dirs, kfd+"/proc", "class/kfd")
		links["class/kfd/kfd"] = kfd
		files[kfd+"/topology/generation_id"] = []string{"1"}
		files[kfd+"/topology/system_properties"] = []string{"platform_oem 0", "platform_id 0", "platform_rev 0"}
		for i := range processors {
			dirs = append(dirs, node(i, "io_links"), node(i, "p2p_links"))
			files[node(i, "gpu_id")], files[node(i, "name")] = []string{"0"}, []string{""}
			files[node(i, "properties")] = []string{"cpu_cores_count 96", "simd_count 0", "location_id 0", "domain 0", "drm_render_minor 0"}
		}
	}
	if !t.o.NoBMC {
		const bmc = "devices/pci0000:c0/0000:c1:00.0"
		files[bmc+"/vendor"], files[bmc+"/device"], files[bmc+"/drm/card0/dev"] = []string{"0x1a03"}, []string{"0x2000"}, []string{"226:0"}
		links["bus/pci/devices/0000:c1:00.0"], links[bmc+"/drm/card0/device"], links["class/drm/card0"] = bmc, bmc, bmc+"/drm/card0"
	}
	for _, d := range dirs {
		if err := os.MkdirAll(t.Path(d), 0o750); err != nil {
			return err
		}
	}
	for name, lines := range files {
		if err := t.put(name, lines...); err != nil {
			return err
		}
	}
	for name, target := range links {
		if err := t.link(target, name); err != nil {
			return err
		}
	}
	return nil
}

// processors is the number of KFD nodes before the GPUs' nodes.
const processors = 2

// put writes a file with lines and creates its directories.
func (t *Tree) put(name string, lines ...string) error {
	path, text := t.Path(name), []byte(strings.Join(lines, "\n")+"\n")
	err := os.WriteFile(path, text, 0o600)
	if !os.IsNotExist(err) { // most directories are there, and a tree has hundreds of files
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

// link makes name a link to target; both are paths below /sys. The link is
// relative, as in sysfs, because libraries read PCI addresses from its text.
func (t *Tree) link(target, name string) error {
	path := t.Path(name)
	rel, err := filepath.Rel(filepath.Dir(path), t.Path(target))
	if err != nil {
		return err
	}
	err = os.Symlink(rel, path)
	switch {
	case os.IsNotExist(err):
		err = os.MkdirAll(filepath.Dir(path), 0o750)
	case os.IsExist(err):
		err = os.Remove(path)
	default:
		return err
	}
	if err != nil {
		return err
	}
	return os.Symlink(rel, path)
}
