package config

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"warpgauge/internal/testkit"
)

var must = testkit.Must

type environment = testkit.Environment

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func write(t *testing.T, path, content string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(content), 0o644))
}

// TestWatch: Watch reports every lasting change of a file or its path once, with the content that the caller reads
// then. "lost" stands for an unreadable file.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := t.TempDir()
		in := func(names ...string) string { return filepath.Join(append([]string{root}, names...)...) }
		swap := func(n, content string) { // as the kubelet does
			must(t, errors.Join(os.Mkdir(in("volume", n), 0o755), os.WriteFile(in("volume", n, "counters.csv"), []byte(content), 0o644),
				os.Symlink(n, in("volume", "..data_tmp")), os.Rename(in("volume", "..data_tmp"), in("volume", "..data"))))
		}
		must(t, os.Mkdir(in("volume"), 0o755))
		swap("..2026_01", "one")
		must(t, errors.Join(os.Symlink("..data/counters.csv", in("volume", "counters.csv")), os.Symlink("volume", in("relative")), os.Symlink(in("relative"), in("absolute"))))
		path := in("absolute", "counters.csv")

		var mu sync.Mutex // guards got and inUse
		var got []string
		inUse := []byte("one")
		testkit.Start(t, func(ctx context.Context) error {
			return Watch(ctx, path, func() ([]byte, bool) {
				mu.Lock()
				defer mu.Unlock()
				return inUse, inUse != nil
			}, func() {
				mu.Lock()
				defer mu.Unlock()
				text := "lost"
				inUse = nil
				if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Size() < 1<<30 {
					inUse, _ = os.ReadFile(path)
					text = string(inUse)
				}
				got = append(got, text)
			})
		})
		f := func(what string, change func() error, want ...string) {
			t.Helper()
			must(t, change())
			time.Sleep(5 * watchEvery)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			testkit.Equal(t, what+": changes", want, got)
			got = nil
		}
		put := func(content string) func() error {
			return func() error { return os.WriteFile(path, []byte(content), 0o644) }
		}
		f("nothing", func() error { return nil })
		f("a swap of a ConfigMap", func() error { swap("..2026_02", "two"); return nil }, "two")
		f("another directory behind a link", func() error {
			return errors.Join(os.Mkdir(in("other"), 0o755), os.WriteFile(in("other", "counters.csv"), []byte("three"), 0o644),
				os.Symlink("other", in("tmp")), os.Rename(in("tmp"), in("relative")))
		}, "three")
		f("a directory in place of the directory", func() error {
			return errors.Join(os.Rename(in("other"), in("old")), os.Mkdir(in("other"), 0o755), os.WriteFile(path, []byte("four"), 0o644))
		}, "four")
		f("a write in place", put("five"), "five")
		f("a rename over it", func() error {
			return errors.Join(os.WriteFile(in("new"), []byte("six"), 0o644), os.Rename(in("new"), path))
		}, "six")
		f("the same content in another file", func() error {
			return errors.Join(os.WriteFile(in("new"), []byte("six"), 0o644), os.Rename(in("new"), path), os.Chtimes(path, time.Now(), time.Unix(1, 0)))
		})
		f("a file that is empty for a moment", func() error {
			err := put("")()
			time.Sleep(watchEvery)
			synctest.Wait()
			return errors.Join(err, put("seven")())
		}, "seven")
		f("a file that stays empty", put("\n"), "\n")
		mu.Lock()
		inUse = []byte("of another reader")
		mu.Unlock()
		f("content that the caller has replaced", func() error { return nil }, "\n")
		for what, spoil := range map[string]func() error{
			"removed":     func() error { return nil },
			"a FIFO":      func() error { return syscall.Mkfifo(path, 0o644) },
			"a directory": func() error { return os.Mkdir(path, 0o755) },
			"a device":    func() error { return os.Symlink("/dev/zero", path) },
			"too large":   func() error { return errors.Join(os.WriteFile(path, nil, 0o644), os.Truncate(path, 10<<30)) },
		} {
			f(what, func() error { return errors.Join(os.Remove(path), spoil()) }, "lost")
			f(what+", and back", func() error { return errors.Join(os.RemoveAll(path), put("\n")()) }, "\n")
		}
	})
}
