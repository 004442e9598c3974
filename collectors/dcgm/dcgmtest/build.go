package dcgmtest

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
	"sync"
	"testing"
)

//go:embed lib/*
var sources embed.FS

const soname = "libdcgm.so.4"

// headers are go-dcgm's copies of DCGM's, at the version that go.mod names.
var headers = []string{"dcgm_agent.h", "dcgm_api_export.h", "dcgm_fields.h", "dcgm_structs.h"}

// function is one of lib/functions.def.
type function struct {
	name  string
	since int // 405 is 4.5
}

var functionLine = regexp.MustCompile(`(?m)^FN\((\w+), (\d+)\)$`)

// functions are those that the library can define, in the order of its counters.
func functions() (out []function) {
	text, err := sources.ReadFile("lib/functions.def")
	if err != nil {
		panic(err) // it is embedded
	}
	for _, m := range functionLine.FindAllStringSubmatch(string(text), -1) {
		since, err := strconv.Atoi(m[2])
		if err != nil {
			panic(err) // the expression matches digits
		}
		out = append(out, function{m[1], since})
	}
	return out
}

// symbols are those of a library of that version, "4.4.1".
func symbols(version string, without []string) ([]string, error) {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return nil, fmt.Errorf("version %q: want 4.6.0", version)
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("version %q: %w", version, err)
	}
	var out []string
	for _, f := range functions() {
		if f.since <= 100*major+minor && !slices.Contains(without, f.name) {
			out = append(out, f.name)
		}
	}
	for _, name := range without {
		if !slices.ContainsFunc(functions(), func(f function) bool { return f.name == name }) {
			return nil, fmt.Errorf("leave out %q: the simulated DCGM has no such function in any version", name)
		}
	}
	return out, nil
}

func flags() []string {
	return []string{
		"-std=c11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-pthread",
		"-Wl,-soname," + soname, "-Wl,-z,nodelete",
	}
}

// compile returns the file of a build, which is made once per machine and
// variant of symbols.
func compile(symbols []string) (string, error) {
	base, err := cacheDir()
	if err != nil {
		return "", err
	}
	from, err := headerDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(base, variant(symbols, from), soname)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	work, err := os.MkdirTemp(base, "build-")
	if err != nil {
		return "", err
	}
	err = compileIn(work, from, symbols)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o750)
	}
	if err == nil {
		err = os.Rename(filepath.Join(work, soname), path)
	}
	return path, errors.Join(err, os.RemoveAll(work))
}

// variant names a build: sources, headers, compiler flags and symbols.
func variant(symbols []string, headers string) string {
	h := sha256.New()
	entries, err := fs.Glob(sources, "lib/*")
	if err != nil {
		panic(err) // the pattern is good
	}
	for _, path := range entries {
		text, err := sources.ReadFile(path)
		if err != nil {
			panic(err) // it is embedded
		}
		h.Write(fmt.Appendf(nil, "%s %d\n%s", path, len(text), text))
	}
	h.Write(fmt.Append(nil, headers, flags(), symbols))
	return hex.EncodeToString(h.Sum(nil))[:16]
}

func compileIn(dir, headerDir string, symbols []string) error {
	for _, name := range headers {
		if err := copyFile(filepath.Join(dir, name), filepath.Join(headerDir, name)); err != nil {
			return err
		}
	}
	lib, err := fs.Sub(sources, "lib")
	if err != nil {
		return err
	}
	if err := os.CopyFS(dir, lib); err != nil {
		return err
	}
	exports := "{ global: " + strings.Join(symbols, "; ") + "; local: *; };\n"
	if err := os.WriteFile(filepath.Join(dir, "exports"), []byte(exports), 0o600); err != nil {
		return err
	}
	units, err := filepath.Glob(filepath.Join(dir, "*.c"))
	if err != nil {
		return err
	}
	args := append(flags(), "-isystem", dir, "-Wl,--version-script="+filepath.Join(dir, "exports"), "-o", filepath.Join(dir, soname))
	args = append(append(args, units...), "-ldl")
	out, err := exec.CommandContext(context.Background(), "cc", args...).CombinedOutput() //nolint:gosec // our own sources
	if err != nil {
		return fmt.Errorf("compile the simulated DCGM: %w\n%s", err, out)
	}
	return nil
}

// headerDir is where go-dcgm keeps DCGM's headers. It is asked for once, because
// the go command takes longer than most tests.
var headerDir = sync.OnceValues(findHeaders)

func findHeaders() (string, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(context.Background(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-dcgm")
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("find dcgm_agent.h: %w\n%s", err, stderr.String())
	}
	return filepath.Join(strings.TrimSpace(string(out)), "pkg", "dcgm"), nil
}

func cacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		base = os.TempDir()
	}
	dir := filepath.Join(base, "warpgauge-dcgmtest-"+strconv.Itoa(os.Getuid()))
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
