//go:build linux && cgo

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPagesAreUpToDate: each page in docs/ is what its tables give.
func TestPagesAreUpToDate(t *testing.T) {
	for _, p := range pages() {
		var got bytes.Buffer
		if err := p.write(&got); err != nil {
			t.Errorf("%s: %v", p.name, err)
			continue
		}
		want, err := os.ReadFile(filepath.Join("..", "..", "docs", p.name))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got.String()); diff != "" {
			t.Errorf("docs/%s is out of date, run go generate ./internal/docgen (-file +generated):\n%s", p.name, diff)
		}
	}
}
