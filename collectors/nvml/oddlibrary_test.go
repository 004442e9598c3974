//go:build linux && cgo

package nvml

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"warpgauge/collectors/nvml/internal/driver"
	"warpgauge/collectors/nvml/nvmltest"
)

// TestATruncatedLibrary: it is named, and the next candidate is loaded. The loader would end the process.
func TestATruncatedLibrary(t *testing.T) {
	if nvmltest.OwnProcess(t) {
		return
	}
	n := nvmltest.New(t, nvmltest.Config{GPUs: 1})
	whole := n.Install(filepath.Join(t.TempDir(), driver.Soname))
	text, err := os.ReadFile(whole)
	must(t, err)
	cut := t.TempDir()
	must(t, os.WriteFile(filepath.Join(cut, driver.Soname), text[:len(text)/2], 0o600))
	t.Setenv("LD_LIBRARY_PATH", cut) // what the loader finds, says this process
	o := at(n)
	o.Library = ""
	_, err = New(o).Open(t.Context(), temperature(t))
	mustSay(t, err, filepath.Join(cut, driver.Soname), "truncated")
	o.DriverRoots = []string{filepath.Dir(whole)}
	c, sources := open(t, o)
	sampleAll(t, sources)
	if c.lib.path != whole {
		t.Errorf("loaded %s, want %s", c.lib.path, whole)
	}
}

func mustSay(t *testing.T, err error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want it to say %q", err, text)
		}
	}
}
