package exporter

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"warpgauge/internal/testkit"

	"golang.org/x/sys/unix"
)

// TestDropPages maps a file, and another one that is written to, as a loader relocates: only the first one leaves memory.
func TestDropPages(t *testing.T) {
	const size = 1 << 20
	for name, write := range map[string]bool{"clean": false, "written": true} {
		f := testkit.Get(os.Create(filepath.Join(t.TempDir(), name)))(t)
		testkit.Get(f.Write(make([]byte, size)))(t)
		m := testkit.Get(unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE))(t)
		if write {
			m[size/2] = 7
		}
		testkit.Must(t, unix.Mprotect(m, unix.PROT_READ))
		before := m[size/2] // maps the page
		dropPages(f.Name())
		text := testkit.Get(os.ReadFile("/proc/self/smaps"))(t)
		if found := regexp.MustCompile(`/` + name + `\n(?:\w+:.*\n)*?Rss: +0 kB`).Match(text); found == write || m[size/2] != before {
			t.Errorf("%s: dropped is %v, the content is %d", name, found, m[size/2])
		}
		testkit.Must(t, unix.Munmap(m))
		testkit.Must(t, f.Close())
	}
}
