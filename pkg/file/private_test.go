package file

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"warpgauge/internal/testkit"
)

func TestWriteWhole(t *testing.T) {
	p := Private{Path: filepath.Join(t.TempDir(), "a", "b"), Of: "lists", Flag: "remote-directory"}
	root, err := p.Open()
	must(t, err)
	defer func() { _ = root.Close() }()
	f := func(name string, fails error) {
		t.Helper()
		err := WriteWhole(root, name, func(w io.Writer) error {
			if _, err := io.WriteString(w, "content"); err != nil {
				return err
			}
			_, err := root.Stat(name)
			testkit.ErrorIf(t, err == nil, "%s is there before it is whole", name)
			return fails
		})
		testkit.ErrorIf(t, !errors.Is(err, fails), "%s: %v, want %v", name, err, fails)
	}
	f("x-1", nil)
	f("x-2", syscall.ENOSPC)
	f("x-3", nil)
	for _, left := range []string{".x-4", ".y-5", "y-6"} {
		must(t, root.WriteFile(left, nil, 0o600))
	}
	files, err := List(root, "x-", time.Now().Add(-time.Hour))
	if err != nil || len(files) != 2 || files[0].Name() != "x-1" || files[1].Name() != "x-3" || files[1].Size() != 7 || files[1].Mode() != 0o600 {
		t.Errorf("files %v, %v", files, err)
	}
	testkit.Get(List(root, "x-", time.Now().Add(time.Hour)))(t)
	got, _ := filepath.Glob(p.Path + "/*[xy]*")
	testkit.ErrorIf(t, len(got) != 4 || filepath.Base(got[0]) != ".y-5", "in the directory: %s", got)
}

func TestPrivateRefusesWhatOthersCanWrite(t *testing.T) {
	dir := t.TempDir()
	f := func(path, want string) {
		t.Helper()
		root, err := Private{Path: path, Of: "lists", Flag: "remote-directory"}.Open()
		if err == nil {
			_ = root.Close()
			t.Errorf("%s is used", path)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	must(t, errors.Join(os.Mkdir(filepath.Join(dir, "open"), 0o700), os.Chmod(filepath.Join(dir, "open"), 0o777)))
	f(filepath.Join(dir, "open"), "other users can write to the directory of lists")
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	f(filepath.Join(dir, "file"), "not a directory")
	f(filepath.Join(dir, "file", "x"), "not a directory")
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory to another user")
	}
	must(t, errors.Join(os.Mkdir(filepath.Join(dir, "theirs"), 0o755), os.Chown(filepath.Join(dir, "theirs"), 4711, 4711)))
	f(filepath.Join(dir, "theirs"), "belongs to user 4711, not to 0: name another with --remote-directory")
}

// TestPrivateReplaces also replaces the incomplete file of a killed process.
func TestPrivateReplaces(t *testing.T) {
	p := Private{Path: filepath.Join(t.TempDir(), "a"), Of: "lists", Flag: "remote-directory"}
	text, err := p.Read("list", 100)
	testkit.FatalIf(t, text != nil || err != nil, "%q, %v before the first", text, err)
	must(t, os.WriteFile(filepath.Join(p.Path, ".list"), []byte("hal"), 0o600))
	for _, want := range []string{"one", "two"} {
		must(t, p.Write("list", []byte(want)))
		text, err := p.Read("list", 100)
		testkit.ErrorIf(t, string(text) != want || err != nil, "%q, %v instead of %q", text, err, want)
	}
	_, err = p.Read("list", 2)
	testkit.ErrorIf(t, !errors.Is(err, ErrTooLarge), "a file that is too large: %v", err)
	p.Path = "/proc/none"
	_, err = p.Read("list", 100)
	testkit.ErrorIf(t, err == nil || !strings.Contains(err.Error(), "--remote-directory"), "a directory that cannot be made: %v", err)
}
