//go:build linux && cgo

// Command docgen writes the generated pages of docs/ for go generate:
//
//	docgen DIRECTORY
//
// It is not part of the exporter. It is not under pkg because it imports the collectors,
// which pkg must not.
// Tests write the other generated pages: those of the collectors theirs, docs/metrics.md that
// of cmd/warpgauge from a running exporter.
package main

//go:generate go run . ../../docs

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// page is a generated page.
type page struct {
	name  string
	write func(io.Writer) error
}

func pages() []page {
	return []page{
		{"flags.md", writeFlags},
		{"fields.md", writeFields},
		{"migration-names.md", writeMigration},
		{"health-rules.md", writeHealthRules},
		{"amd-names.md", writeAMDNames},
	}
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: docgen DIRECTORY")
		os.Exit(2)
	}
	if err := writeAll(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "docgen:", err)
		os.Exit(1)
	}
}

func writeAll(dir string) error {
	for _, p := range pages() {
		var text bytes.Buffer
		if err := p.write(&text); err != nil {
			return fmt.Errorf("write %s: %w", p.name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, p.name), text.Bytes(), 0o644); err != nil { //nolint:gosec // documentation is for all to read
			return err
		}
	}
	return nil
}
