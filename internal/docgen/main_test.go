//go:build linux && cgo

package main

import (
	"os"
	"path/filepath"
	"testing"

	"warpgauge/internal/testkit"
)

// TestPagesAreUpToDate compares each page in docs/ with its tables.
func TestPagesAreUpToDate(t *testing.T) {
	for name := range pages {
		got, err := render(name)
		testkit.Must(t, err)
		want := testkit.Get(os.ReadFile(filepath.Join("..", "..", "docs", name)))(t)
		testkit.Equal(t, "docs/"+name+", which go generate ./internal/docgen writes", string(want), string(got))
	}
}
