//go:build linux && cgo

// Command docgen writes the generated pages of docs/ for go generate:
//
//	docgen DIRECTORY
//
// It is not part of the exporter. It is not under pkg because it imports the collectors, which pkg must not. Tests
// write the other generated pages: the collectors' tests their own pages, and cmd/warpgauge's tests docs/metrics.md,
// from a running exporter.
package main

//go:generate go run . ../../docs

import (
	"bytes"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"text/template"
)

// pages maps the generated pages, each with a template NAME.tmpl, to the functions for their data.
var pages = map[string]func() (any, error){
	"flags.md": flagsPage, "fields.md": fieldsPage, "migration-names.md": migrationPage, "health-rules.md": healthPage, "amd-names.md": amdPage,
}

//go:embed *.tmpl
var files embed.FS

// render returns the text of a page.
func render(name string) ([]byte, error) {
	data, err := pages[name]()
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", name, err)
	}
	t, err := template.ParseFS(files, name+".tmpl")
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	err = t.Execute(&text, data)
	return text.Bytes(), err
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: docgen DIRECTORY")
		os.Exit(2)
	}
	for name := range pages {
		text, err := render(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(os.Args[1], name), text, 0o644) //nolint:gosec // documentation is public
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "docgen:", err)
			os.Exit(1)
		}
	}
}
