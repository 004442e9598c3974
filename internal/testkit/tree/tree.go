// Package tree makes directories of small files for tests.
package tree

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"warpgauge/internal/testkit"
)

// Write writes files (path → text) below a new directory and returns it. A path that ends in a slash becomes a
// directory, a text that begins with "-> " a link.
func Write(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for path, text := range files {
		full := filepath.Join(root, path)
		target, link := strings.CutPrefix(text, "-> ")
		err := os.MkdirAll(filepath.Dir(full), 0o750)
		switch {
		case err != nil:
		case strings.HasSuffix(path, "/"):
			err = os.MkdirAll(full, 0o750)
		case link:
			err = os.Symlink(target, full)
		default:
			err = os.WriteFile(full, []byte(text), 0o600)
		}
		testkit.Must(t, err)
	}
	return root
}
