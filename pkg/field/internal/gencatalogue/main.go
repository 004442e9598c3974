// Command gencatalogue writes the catalogue of package field.
//
// Names and numbers come from the go-dcgm module of go.mod, so that every field
// which go-dcgm knows is there; what else is known about each field (kind,
// level, unit, cost, range, a line of help) comes from facts.csv, and the names
// that newer DCGM versions give to the same quantities from base_units.csv.
// The command fails when a field of go-dcgm has no facts or facts have no
// field, so an update of the module can not go unnoticed.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const module = "github.com/NVIDIA/go-dcgm"

func main() {
	out := flag.String("o", "zz_generated_catalogue.go", "file to write")
	flag.Parse()
	src, err := generate(context.Background())
	if err == nil {
		err = os.WriteFile(*out, src, 0o644) //nolint:gosec // a source file is for all to read
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gencatalogue:", err)
		os.Exit(1) //nolint:forbidigo // this is main
	}
}

// generate returns the formatted source of the catalogue.
func generate(ctx context.Context) ([]byte, error) {
	dir, version, err := findModule(ctx)
	if err != nil {
		return nil, err
	}
	names, err := readNames(filepath.Join(dir, "pkg", "dcgm"))
	if err != nil {
		return nil, err
	}
	facts, err := readFacts()
	if err != nil {
		return nil, err
	}
	units, err := readBaseUnits()
	if err != nil {
		return nil, err
	}
	entries, err := combine(names, facts, units)
	if err != nil {
		return nil, err
	}
	return render(entries, version)
}

// findModule asks the go command where the module's files are.
func findModule(ctx context.Context) (dir, version string, err error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}\t{{.Version}}", module).Output()
	if err != nil {
		return "", "", fmt.Errorf("find module %q: %w", module, err)
	}
	dir, version, _ = strings.Cut(strings.TrimSpace(string(out)), "\t")
	if dir == "" {
		return "", "", fmt.Errorf("find module %q: not downloaded, run go mod download", module)
	}
	return dir, version, nil
}
