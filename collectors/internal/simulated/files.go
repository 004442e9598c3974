package simulated

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// file is an input of a build: the library's own source, one of this package, or one of the vendor's headers.
type file struct {
	name string // in the build's directory
	text []byte
}

// files returns all files of the build, by name.
func (l *Library) files() ([]file, error) {
	out, err := readDir(nil, l.Sources)
	if err == nil && l.Scripted {
		var lib fs.FS
		if lib, err = fs.Sub(shared, "lib"); err == nil {
			out, err = readDir(out, lib)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("sources of the simulated %s: %w", l.Name, err)
	}
	if l.Headers != nil {
		vendor, err := l.Headers()
		if err != nil {
			return nil, fmt.Errorf("headers of %s: %w", l.Name, err)
		}
		for name, text := range vendor {
			out = append(out, file{path.Join(headers, name), text})
		}
	}
	slices.SortFunc(out, func(a, b file) int { return cmp.Compare(a.name, b.name) })
	return out, nil
}

// readDir adds the files of a directory. Their names must be unique.
func readDir(out []file, dir fs.FS) ([]file, error) {
	entries, err := fs.ReadDir(dir, ".")
	for _, e := range entries {
		if slices.ContainsFunc(out, func(f file) bool { return f.name == e.Name() }) {
			return nil, fmt.Errorf("two files are named %s", e.Name())
		}
		text, err := fs.ReadFile(dir, e.Name())
		if err != nil {
			return nil, err
		}
		out = append(out, file{e.Name(), text})
	}
	return out, err
}

// ModuleFolder returns where the go command keeps a folder of a module in go.mod, for example /pkg/nvml of
// "github.com/NVIDIA/go-nvml". It must be called inside this module.
func ModuleFolder(module, folder string) (string, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(context.Background(), "go", "list", "-m", "-f", "{{.Dir}}", module) //nolint:gosec // a module of go.mod
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("find module %s: %w\n%s", module, err, stderr.String())
	}
	return filepath.Join(strings.TrimSpace(string(out)), folder), nil
}
