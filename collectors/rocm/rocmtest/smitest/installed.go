package smitest

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"warpgauge/collectors/internal/dl"
	"warpgauge/collectors/rocm/rocmtest"
	"warpgauge/internal/testkit/programtest"
)

// Installed returns the file of the installed librocm_smi64. Without it the test is
// skipped, or fails if WARPGAUGE_REQUIRE names rocm-smi.
func Installed(tb testing.TB) string {
	tb.Helper()
	return installed(tb, "rocm-smi", "librocm_smi64 (Debian: apt-get install librocm-smi64-1)",
		"librocm_smi64.so.1", "librocm_smi64.so.7", "librocm_smi64.so.6", "librocm_smi64.so.5", "librocm_smi64.so", "/opt/rocm/lib/librocm_smi64.so")
}

// InstalledAMD is Installed for libamd_smi; WARPGAUGE_REQUIRE names it amd-smi.
func InstalledAMD(tb testing.TB) string {
	tb.Helper()
	return installed(tb, "amd-smi", "libamd_smi (AMD's packages)",
		"libamd_smi.so.27", "libamd_smi.so.26", "libamd_smi.so.25", "libamd_smi.so.24", "libamd_smi.so", "/opt/rocm/lib/libamd_smi.so")
}

// files caches the found libraries. Later the loader might return a loaded patched copy with the same soname.
var files sync.Map

func installed(tb testing.TB, require, what string, names ...string) string {
	tb.Helper()
	if file, known := files.Load(require); known {
		return file.(string)
	}
	l, err := dl.Open(names)
	if err == nil {
		defer l.Close() //nolint:errcheck // only its path is needed
		files.Store(require, l.Path())
		return l.Path()
	}
	programtest.Missing(tb, require, "%s: %v", what, err)
	return ""
}

// Real is a copy of the installed library that reads a simulated /sys.
type Real struct {
	Path string // the copy
	Dir  string // the working directory that the copy needs
	// Locks is the name of the copy's own device mutexes, files in /dev/shm.
	Locks string
}

// NewReal makes a copy of the installed library and a working directory for it. The paths in the copy are relative, so the
// process that loads it must be in Dir. Enter changes a test's directory to Dir.
func NewReal(tb testing.TB, tree *rocmtest.Tree) *Real {
	tb.Helper()
	return newReal(tb, tree, Installed(tb), "librocm_smi64.so.1")
}

// NewRealAMD is NewReal for libamd_smi.
func NewRealAMD(tb testing.TB, tree *rocmtest.Tree) *Real {
	tb.Helper()
	return newReal(tb, tree, InstalledAMD(tb), "libamd_smi.so.1")
}

func newReal(tb testing.TB, tree *rocmtest.Tree, file, name string) *Real {
	tb.Helper()
	text, err := os.ReadFile(file)
	must(tb, err)
	dir := tb.TempDir()
	r := &Real{Path: filepath.Join(dir, name), Dir: dir, Locks: "wg" + strings.ToLower(rand.Text()[:6])}
	patches := []struct{ old, next string }{
		{"/sys/class/", "fsys/class/"},
		{"/sys/module/", "fsys/module/"},
		{"/dev/kfd", "fdev/kfd"},
		{"/rocm_smi_", "/" + r.Locks + "_"},
	}
	for _, p := range patches {
		if text, err = replace(text, []byte(p.old), []byte(p.next)); err != nil {
			tb.Fatal(err)
		}
	}
	if err := os.WriteFile(r.Path, text, 0o600); err != nil { //nolint:gosec // in a directory of the test
		tb.Fatal(err)
	}
	must(tb, os.Symlink(tree.Sys(), filepath.Join(dir, "fsys")))
	must(tb, os.Mkdir(filepath.Join(dir, "fdev"), 0o700))
	must(tb, os.WriteFile(r.KFD(), nil, 0o600))
	tb.Cleanup(func() { r.removeLocks(tb) })
	return r
}

// KFD returns the file that the copy uses as /dev/kfd.
func (r *Real) KFD() string { return filepath.Join(r.Dir, "fdev/kfd") }

// Enter changes the test's working directory to the copy's.
func (r *Real) Enter(t *testing.T) *Real {
	t.Helper()
	t.Chdir(r.Dir)
	return r
}

// LockFiles returns the existing device mutexes.
func (r *Real) LockFiles(tb testing.TB) []string {
	tb.Helper()
	files, err := filepath.Glob("/dev/shm/" + r.Locks + "_*")
	must(tb, err)
	return files
}

func (r *Real) removeLocks(tb testing.TB) {
	tb.Helper()
	for _, f := range r.LockFiles(tb) {
		if err := os.Remove(f); err != nil {
			tb.Error(err)
		}
	}
}
