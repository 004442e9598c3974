package simulated

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// headers is the folder of the vendor's headers in a build. Their warnings are not shown.
const headers = "vendor"

// Build compiles the library, unless this machine has it in the cache, and returns its file, which must not be changed.
// It exports the given symbols, or with nil all that are not static. Several processes may build at once.
func (l *Library) Build(exports []string) (string, error) {
	files, err := l.files()
	if err != nil {
		return "", err
	}
	// Machines of several architectures may share a home with the cache.
	sources := fingerprint(files, l.Name, runtime.GOARCH, compiler(), l.compile())
	dir, err := once(fingerprint(nil, sources, l.File, l.link(), exports == nil, exports), func(dir string) error {
		objects, err := once(sources, func(dir string) error { return l.compileIn(dir, files) })
		if err != nil {
			return err
		}
		return l.linkIn(dir, objects, exports)
	})
	return filepath.Join(dir, l.File), err
}

// fingerprint names a build by its files and other inputs.
func fingerprint(files []file, more ...any) string {
	h := sha256.New()
	for _, f := range files {
		h.Write(fmt.Appendf(nil, "%s %d\n%s", f.name, len(f.text), f.text))
	}
	h.Write(fmt.Appendf(nil, "%q", more))
	return hex.EncodeToString(h.Sum(nil))[:24]
}

// once returns the directory of that name and lets fill create it if it is missing. The directory appears atomically:
// if two processes fill it, the slower one discards its work.
func once(name string, fill func(dir string) error) (string, error) {
	base, err := Directory()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(base, name)
	if there(dir) {
		return dir, nil
	}
	work, err := os.MkdirTemp(base, "build-")
	if err != nil {
		return "", err
	}
	if err = fill(work); err == nil {
		if err = os.Rename(work, dir); there(dir) {
			err = nil
		}
	}
	return dir, errors.Join(err, os.RemoveAll(work))
}

func there(dir string) bool {
	_, err := os.Stat(dir)
	return err == nil
}

// compileIn makes the object files in an empty directory.
func (l *Library) compileIn(dir string, files []file) error {
	if err := os.Mkdir(filepath.Join(dir, headers), 0o750); err != nil {
		return err
	}
	args := append(l.compile(), "-c")
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(dir, f.name), f.text, 0o600); err != nil {
			return err
		}
		if filepath.Ext(f.name) == ".c" {
			args = append(args, f.name)
		}
	}
	return l.cc(dir, args)
}

// linkIn makes the library in an empty directory.
func (l *Library) linkIn(dir, objects string, exports []string) error {
	args, err := filepath.Glob(filepath.Join(objects, "*.o"))
	if err != nil {
		return err
	}
	if exports != nil {
		text := "{ global: " + strings.Join(exports, "; ") + "; local: *; };\n"
		if err := os.WriteFile(filepath.Join(dir, "exports"), []byte(text), 0o600); err != nil {
			return err
		}
		args = append(args, "-Wl,--version-script=exports")
	}
	return l.cc(dir, append(append(args, l.link()...), "-o", l.File))
}

// compiler returns $CC with its flags, or cc. If cgo compiled the program for another architecture, its libraries
// need the same compiler.
func compiler() []string {
	if cc := strings.Fields(os.Getenv("CC")); len(cc) != 0 {
		return cc
	}
	return []string{"cc"}
}

// CC runs the compiler in a directory, for a test's own sources.
func CC(dir string, args ...string) error {
	args = append(compiler(), args...)
	cmd := exec.CommandContext(context.Background(), args[0], args[1:]...) //nolint:gosec // the project's own sources
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

func (l *Library) cc(dir string, args []string) error {
	if err := CC(dir, args...); err != nil {
		return fmt.Errorf("compile the simulated %s: %w", l.Name, err)
	}
	return nil
}
