//go:build linux

package simulated_test

import (
	"os"
	"path/filepath"
	"testing"

	"warpgauge/collectors/internal/simulated"
)

// TestCopy: a copy is a file of its own, which finds its script, and sees each
// new one.
func TestCopy(t *testing.T) {
	l, dir := tiny(t), filepath.Join(t.TempDir(), "sim")
	built := build(t, l)
	must(t, os.Mkdir(dir, 0o700))
	must(t, os.WriteFile(filepath.Join(dir, l.File), []byte("an older one"), 0o600))
	loaded, err := os.Open(filepath.Join(dir, l.File))
	must(t, err)
	defer loaded.Close()
	c, err := l.Copy(dir, built)
	must(t, err)
	defer c.Control.Close()
	other := filepath.Join(t.TempDir(), "another.so")
	must(t, c.Share(other, built))
	for _, path := range []string{c.Path, other} {
		if text(t, path) != text(t, built) {
			t.Errorf("%s is not the library", path)
		}
		if got, want := text(t, path+".node"), filepath.Join(dir, "script")+"\n"; got != want {
			t.Errorf("%s finds its script by %q, want %q", path, got, want)
		}
	}
	old := make([]byte, 20)
	if n, _ := loaded.Read(old); string(old[:n]) != "an older one" {
		t.Errorf("the library that was loaded became %q", old[:n])
	}

	f := func(word int, want uint64) {
		t.Helper()
		if got, err := c.Control.Read(word); err != nil || got != want {
			t.Errorf("word %d: got %d, %v, want %d", word, got, err, want)
		}
	}
	f(simulated.Generation, 0)
	for i, script := range []string{"one\n", "another\n"} {
		must(t, c.Write(script))
		if got := text(t, filepath.Join(dir, "script")); got != script {
			t.Errorf("the script is %q, want %q", got, script)
		}
		f(simulated.Generation, uint64(i+1))
	}
	must(t, simulated.Tell(dir, simulated.Generation))
	f(simulated.Generation, 3)
	must(t, c.Control.Write(simulated.FirstOwn+7, 1<<63))
	must(t, c.Control.Next(simulated.FirstOwn+7))
	f(simulated.FirstOwn+7, 1<<63+1)
	if err := simulated.Tell(t.TempDir(), simulated.Generation); err == nil {
		t.Error("a directory without a library was accepted")
	}
}

func text(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	must(t, err)
	return string(text)
}
