package nvmltest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

//go:embed lib/*
var sources embed.FS

const soname = "libnvidia-ml.so.1"

// Options of a build of the library.
type Options struct {
	// Driver is a branch or a version, as in Config; "" means "580".
	Driver string
	// Without are symbols to leave out, beyond those that the driver lacks.
	Without []string
}

// variant names a build: sources, compiler flags and symbols.
func (o Options) variant() (string, error) {
	symbols, err := o.symbols()
	if err != nil {
		return "", err
	}
	return fingerprint(symbols)
}

// fingerprint names what is built of the sources, and of what else there is.
func fingerprint(more []string) (string, error) {
	h := sha256.New()
	err := fs.WalkDir(sources, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := sources.ReadFile(path)
		h.Write(fmt.Appendf(nil, "%s %d\n%s", path, len(text), text))
		return err
	})
	h.Write(fmt.Append(nil, flags(), more))
	return hex.EncodeToString(h.Sum(nil))[:16], err
}

// symbols are those that the library defines.
func (o Options) symbols() ([]string, error) {
	branch, err := driverBranch(o.Driver)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, f := range functions() {
		if f.driver <= branch && !slices.Contains(o.Without, f.name) {
			out = append(out, f.name)
		}
	}
	for _, name := range o.Without {
		if !slices.ContainsFunc(functions(), func(f function) bool { return f.name == name }) {
			return nil, fmt.Errorf("leave out %q: the simulated NVML has no such function in any version", name)
		}
	}
	return out, nil
}

func flags() []string {
	return []string{"-std=c11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-deprecated-declarations",
		"-fPIC", "-pthread"}
}

// compile returns the file of a build, which is made once per machine.
func compile(o Options) (string, error) {
	v, err := o.variant()
	if err != nil {
		return "", err
	}
	base, err := cacheDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(base, v, soname)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	work, err := os.MkdirTemp(base, "build-")
	if err != nil {
		return "", err
	}
	err = link(work, o)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o750)
	}
	if err == nil {
		err = os.Rename(filepath.Join(work, soname), path)
	}
	return path, errors.Join(err, os.RemoveAll(work))
}

// link makes the library in an empty directory. Builds differ by what they export.
func link(dir string, o Options) error {
	symbols, err := o.symbols()
	if err != nil {
		return err
	}
	objects, err := compileObjects()
	if err != nil {
		return err
	}
	exports := "{ global: " + strings.Join(symbols, "; ") + "; nvmltest_*; local: *; };\n"
	if err := os.WriteFile(filepath.Join(dir, "exports"), []byte(exports), 0o600); err != nil {
		return err
	}
	args := append(flags(), "-shared", "-Wl,-soname,"+soname, "-Wl,--version-script="+filepath.Join(dir, "exports"), "-o", filepath.Join(dir, soname))
	return cc(dir, append(append(args, objects...), "-lm", "-ldl")...)
}

// compileObjects returns the object files, which are made once per machine.
func compileObjects() (files []string, err error) {
	v, err := fingerprint([]string{"objects"})
	if err != nil {
		return nil, err
	}
	base, err := cacheDir()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(base, v)
	if _, err := os.Stat(dir); err != nil {
		work, err := os.MkdirTemp(base, "build-")
		if err != nil {
			return nil, err
		}
		if err := compileIn(work); err != nil {
			return nil, errors.Join(err, os.RemoveAll(work))
		}
		if err := os.Rename(work, dir); err != nil { // another process was faster
			_ = os.RemoveAll(work)
		}
	}
	return filepath.Glob(filepath.Join(dir, "*.o"))
}

// compileIn compiles the sources in an empty directory.
func compileIn(dir string) error {
	if err := copyHeader(dir); err != nil {
		return err
	}
	lib, err := fs.Sub(sources, "lib")
	if err != nil {
		return err
	}
	if err := os.CopyFS(dir, lib); err != nil {
		return err
	}
	units, err := filepath.Glob(filepath.Join(dir, "*.c"))
	if err != nil {
		return err
	}
	return cc(dir, append(append(flags(), "-c", "-isystem", "."), units...)...)
}

func cc(dir string, args ...string) error {
	cmd := exec.CommandContext(context.Background(), "cc", args...) //nolint:gosec // our own sources
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compile the simulated NVML: %w\n%s", err, out)
	}
	return nil
}

// wrapped is how go-nvml's copy of nvml.h declares handles: in a struct, which is
// passed as the pointer in it would be. NVIDIA's own has the pointer.
var wrapped = regexp.MustCompile(`typedef struct\s*\{\s*struct (\w+)\s*\*\s*handle;\s*\}\s*(\w+);`)

func copyHeader(dir string) error {
	from, err := headerDir()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(from, "nvml.h"))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "nvml.h"), wrapped.ReplaceAll(text, []byte("typedef struct $1 *$2;")), 0o600) //nolint:gosec // a directory of our own
}

// headerDir is where go-nvml keeps nvml.h.
func headerDir() (string, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(context.Background(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml")
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("find nvml.h: %w\n%s", err, stderr.String())
	}
	return filepath.Join(strings.TrimSpace(string(out)), "pkg", "nvml"), nil
}

func cacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		base = os.TempDir()
	}
	dir := filepath.Join(base, "warpgauge-nvmltest-"+strconv.Itoa(os.Getuid()))
	return dir, os.MkdirAll(dir, 0o700)
}

func copyFile(to, from string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o600) //nolint:gosec // where the caller says
}

// requireCC skips the test where nothing compiles C.
func requireCC(tb testing.TB) {
	tb.Helper()
	_, err := exec.LookPath("cc")
	if err == nil {
		return
	}
	if slices.Contains(strings.Split(os.Getenv("WARPGAUGE_REQUIRE"), ","), "cc") {
		tb.Fatalf("cc is required by WARPGAUGE_REQUIRE but missing: %v", err)
	}
	tb.Skip("cc is not installed")
}
