//go:build linux && cgo

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPagesAreUpToDate compares each page in docs/ with its tables.
func TestPagesAreUpToDate(t *testing.T) {
	for name := range pages {
		got, err := render(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("docs/%s is out of date, run go generate ./internal/docgen (-file +generated):\n%s", name, diff)
		}
	}
}
