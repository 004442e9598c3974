package exporter

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDropPages maps a file, and another one that is written to, as a loader relocates: only the first one leaves memory.
func TestDropPages(t *testing.T) {
	const size = 1 << 20
	check := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, write := range map[string]bool{"clean": false, "written": true} {
		f, err := os.Create(filepath.Join(t.TempDir(), name))
		check(nil, err)
		check(f.Write(make([]byte, size)))
		m, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE)
		check(nil, err)
		if write {
			m[size/2] = 7
		}
		check(nil, unix.Mprotect(m, unix.PROT_READ))
		before := m[size/2] // maps the page
		dropPages(f.Name())
		text, err := os.ReadFile("/proc/self/smaps")
		check(nil, err)
		if found := regexp.MustCompile(`/` + name + `\n(?:\w+:.*\n)*?Rss: +0 kB`).Match(text); found == write || m[size/2] != before {
			t.Errorf("%s: dropped is %v, the content is %d", name, found, m[size/2])
		}
		check(nil, unix.Munmap(m))
		check(nil, f.Close())
	}
}
