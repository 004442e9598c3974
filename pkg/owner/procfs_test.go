package owner

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestStart(t *testing.T) {
	f := func(stat string, want uint64, wantOK bool) {
		t.Helper()
		if got, ok := parseStart([]byte(stat)); ok != wantOK || ok && got != want {
			t.Errorf("%q: got %d, %v, want %d, %v", stat, got, ok, want, wantOK)
		}
	}
	const after = " S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 "
	f("1 (systemd)"+after+"17 171798691 3 18446744073709551615 1 1", 17, true)
	f("4194304 (a b) c) (d)"+after+"123456789 1", 123456789, true)
	f("7 (python3)"+after+"0\n", 0, true)
	f("7 (python3)"+after+"99999999999999999999 1", 0, false)
	f("7 (python3)"+after+"x", 0, false)
	f("7 (python3)"+after, 0, false)
	f("7 (python3) S 1 1", 0, false)
	f("7 python3", 0, false)
	f("", 0, false)
}

func FuzzStart(f *testing.F) {
	f.Add([]byte("1 (systemd) S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 17 171798691 3"))
	f.Add([]byte("1 (a) b) S 1"))
	f.Fuzz(func(t *testing.T, stat []byte) {
		if start, ok := parseStart(stat); ok && !strings.Contains(string(stat), strconv.FormatUint(start, 10)) {
			t.Errorf("%q: %d is not in it", stat, start)
		}
	})
}

func TestFilesAreBounded(t *testing.T) {
	root := t.TempDir()
	put := func(pid, content string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(root, pid), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, pid, "cgroup"), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("1", strings.Repeat("1:x:/y\n", maxFileBytes))
	put("2", strings.Repeat("x", 2*maxFileBytes))
	put("3", "0::/\n")
	p := newProcfs(root)
	if got, err := p.file(1, "cgroup"); err != nil || len(got) == 0 || len(got) > maxFileBytes || got[len(got)-1] != '\n' {
		t.Errorf("a file that is too long: %d bytes, %v", len(got), err)
	}
	if got, err := p.file(2, "cgroup"); err != nil || len(got) != 0 {
		t.Errorf("a line that is too long: %d bytes, %v", len(got), err)
	}
	if got, err := p.file(3, "cgroup"); err != nil || string(got) != "0::/\n" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := p.file(4, "cgroup"); !errors.Is(err, errGone) {
		t.Errorf("a process that there is not: %v, want %v", err, errGone)
	}
	if err := os.Mkdir(filepath.Join(root, "3", "stat"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := p.file(3, "stat"); err == nil || errors.Is(err, errGone) {
		t.Errorf("a file that cannot be read: %v, want another error than %v", err, errGone)
	}
}
