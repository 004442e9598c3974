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
	src, err := generate()
	if err == nil {
		err = os.WriteFile(*out, src, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gencatalogue:", err)
		os.Exit(1)
	}
}

// generate returns the formatted source of the catalogue.
func generate() ([]byte, error) {
	dir, version, err := findModule()
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
func findModule() (dir, version string, err error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}\t{{.Version}}", module).Output()
	if err != nil {
		return "", "", fmt.Errorf("find module %q: %w", module, err)
	}
	dir, version, _ = strings.Cut(strings.TrimSpace(string(out)), "\t")
	if dir == "" {
		return "", "", fmt.Errorf("find module %q: not downloaded, run go mod download", module)
	}
	return dir, version, nil
}
