package rocmtest

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
)

// Vanish removes the GPU from the bus. Files that a reader has open become empty; in sysfs they would return ENODEV.
func (g *GPU) Vanish(tb testing.TB) {
	tb.Helper()
	g.gone = true
	t := g.tree
	dirs := []string{t.Path(g.dir())}
	links := []string{"bus/pci/devices/" + g.PCI, "bus/pci/drivers/amdgpu/" + g.PCI,
		"class/hwmon/" + filepath.Base(g.Path("hwmon/"))}
	for _, i := range g.Instances {
		links = append(links, "class/drm/"+i.Card, "class/drm/"+i.Render)
		if i.Name != "" {
			dirs = append(dirs, t.Path("devices/platform/"+i.Name))
		}
		dirs = append(dirs, t.Path(node(i.Node)))
	}
	for _, l := range links {
		must(tb, os.Remove(t.Path(l)))
	}
	for _, d := range dirs {
		must(tb, remove(d))
	}
}

// Return brings the GPU back at the same address.
func (g *GPU) Return(tb testing.TB) {
	tb.Helper()
	g.gone = false
	must(tb, g.build())
}

// Hide makes a device of the compute side unusable for control groups: a process without root's rights cannot read its
// files.
func (g *GPU) Hide(tb testing.TB, instance int) {
	tb.Helper()
	for _, name := range []string{"gpu_id", "name", "properties"} {
		must(tb, os.Chmod(g.tree.Path(node(g.Instances[instance].Node, name)), 0))
	}
}

// AsUser calls f without root's rights over files, on a separate thread; other goroutines of f keep their rights. It
// skips the test if rights cannot be dropped.
func (t *Tree) AsUser(tb testing.TB, f func()) {
	tb.Helper()
	if os.Geteuid() == 0 {
		must(tb, t.publish())
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		const other = 65534
		must(tb, syscall.Setfsuid(other))
		defer func() {
			if err := syscall.Setfsuid(0); err != nil {
				tb.Error(err)
			}
		}()
		if file, err := os.CreateTemp(t.Root, ""); err == nil { // root's directory
			_ = file.Close()
			tb.Skip("root's rights cannot be given up here")
		}
	}
	f()
}

// publish makes the files that are not hidden readable for every user.
func (t *Tree) publish() error {
	return filepath.WalkDir(t.Root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		switch {
		case err != nil, d.Type()&os.ModeSymlink != 0, info.Mode().Perm() == 0:
			return err
		case d.IsDir():
			return os.Chmod(path, 0o755) //nolint:gosec // as the kernel's are
		}
		return os.Chmod(path, 0o644) //nolint:gosec // the same
	})
}

// empty truncates every file below dir.
func empty(dir string) error {
	return filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		return os.Truncate(path, 0)
	})
}

// Inaccessible is the text of RAS counts while the GPU resets.
const Inaccessible = "Query currently inaccessible\n"

// FIFO replaces the key's file by a pipe. Readers that open the file then wait, as with a hanging driver, until the test
// feeds or closes the pipe. It is closed when the test ends.
func (g *GPU) FIFO(tb testing.TB, key string) *FIFO {
	tb.Helper()
	g.Remove(tb, key)
	return newFIFO(tb, g.Path(key))
}

func newFIFO(tb testing.TB, path string) *FIFO {
	tb.Helper()
	must(tb, syscall.Mkfifo(path, 0o600))
	// O_RDWR, so that neither side waits in open.
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(tb, err)
	p := &FIFO{f: f}
	tb.Cleanup(p.Close)
	return p
}

// FIFO is a file whose readers wait.
type FIFO struct{ f *os.File }

// Feed gives text to one reader.
func (p *FIFO) Feed(tb testing.TB, text string) {
	tb.Helper()
	if _, err := p.f.WriteString(text); err != nil {
		tb.Fatal(err)
	}
}

// Close releases all readers; they see the end of the file.
func (p *FIFO) Close() {
	_ = p.f.Close() // may be the second Close, at the end of the test
}
