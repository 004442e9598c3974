package config

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// watched is a Watch under test. changes gets a content for each onChange,
// looks one entry for each look at the file.
type watched struct {
	t       *testing.T
	path    string
	changes chan string
	looks   chan bool
}

func startWatch(t *testing.T, path string, o WatchOptions) *watched {
	t.Helper()
	w := &watched{t: t, path: path, changes: make(chan string, 100), looks: make(chan bool, 10000)}
	o.Debounce = 5 * time.Millisecond
	o.checked = func(changed bool) { w.looks <- changed }
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- Watch(ctx, path, o, func() {
			data, err := os.ReadFile(path)
			if err != nil {
				data = []byte("unreadable")
			}
			w.changes <- string(data)
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Watch(%q) = %v after the end of its context, want nil", path, err)
		}
	})
	return w
}

// receive waits for what will come. The limit only turns a hang into a failure.
func receive[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(30 * time.Second):
		t.Fatalf("no %s within 30 s", what)
		panic("unreachable")
	}
}

func (w *watched) wantChange(content string) {
	w.t.Helper()
	for { // a write in place may be seen between its truncation and its end
		if got := receive(w.t, w.changes, "change to "+content); got == content {
			return
		} else if got != "" {
			w.t.Fatalf("changed to %q, want %q", got, content)
		}
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestWatchWriteInPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "counters.csv")
	write(t, path, "one")
	w := startWatch(t, path, WatchOptions{})
	w.wantChange("one") // the file may have changed before
	write(t, path, "two")
	w.wantChange("two")
	write(t, path, "three")
	w.wantChange("three")
}

func TestWatchKnownContent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "counters.csv")
	write(t, path, "one")
	known := func(s string) func() []byte { return func() []byte { return []byte(s) } }
	same := startWatch(t, path, WatchOptions{Known: known("one")})
	if changed := receive(t, same.looks, "first look"); changed {
		t.Fatal("known content was told as a change")
	}
	other := startWatch(t, path, WatchOptions{Known: known("zero")})
	other.wantChange("one")
	write(t, path, "two")
	same.wantChange("two")
	other.wantChange("two")
}

// TestWatchContentThatTheCallerLeftMeanwhile: the caller reads the file between
// two looks, so the content of the first look is new again at the second.
func TestWatchContentThatTheCallerLeftMeanwhile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "counters.csv")
	write(t, path, "B")
	var inUse atomic.Value
	inUse.Store("B")
	w := startWatch(t, path, WatchOptions{Known: func() []byte { return []byte(inUse.Load().(string)) }})
	if changed := receive(t, w.looks, "first look"); changed {
		t.Fatal("content in use was told as a change")
	}
	inUse.Store("A") // the file held A for a moment, and was read then
	write(t, path, "B")
	w.wantChange("B")
}

func TestWatchRenameOver(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "counters.csv")
	write(t, path, "one")
	w := startWatch(t, path, WatchOptions{})
	w.wantChange("one")
	for _, content := range []string{"two", "three", "four"} {
		write(t, filepath.Join(dir, "counters.csv.new"), content)
		must(t, os.Rename(filepath.Join(dir, "counters.csv.new"), path))
		w.wantChange(content)
	}
}

func TestWatchSameContentIsNoChange(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "counters.csv")
	write(t, path, "one")
	w := startWatch(t, path, WatchOptions{})
	w.wantChange("one")
	receive(t, w.looks, "first look")
	write(t, filepath.Join(dir, "new"), "one")
	must(t, os.Rename(filepath.Join(dir, "new"), path))
	if changed := receive(t, w.looks, "look after the rename"); changed {
		t.Fatal("the same content was told as a change")
	}
	must(t, os.Chtimes(path, time.Now(), time.Unix(1, 0)))
	if changed := receive(t, w.looks, "look after the touch"); changed {
		t.Fatal("another time stamp was told as a change")
	}
	write(t, path, "two")
	w.wantChange("two")
}

func TestWatchDeletionAndReturn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "counters.csv")
	write(t, path, "one")
	core, logs := observer.New(zap.InfoLevel)
	w := startWatch(t, path, WatchOptions{Logger: zap.New(core)})
	w.wantChange("one")
	receive(t, w.looks, "first look")
	must(t, os.Remove(path))
	if changed := receive(t, w.looks, "look after the deletion"); changed {
		t.Fatal("a deletion was told as a change")
	}
	write(t, path, "two")
	w.wantChange("two")
	var lines []string
	for _, e := range logs.All() {
		lines = append(lines, e.Message)
	}
	if len(lines) != 2 || logs.FilterMessageSnippet("cannot be read").Len() != 1 || logs.FilterMessageSnippet("again").Len() != 1 {
		t.Errorf("log lines = %q, want one for the deletion and one for the return", lines)
	}
}

func TestWatchFileThatComesLater(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "yet")
	path := filepath.Join(dir, "counters.csv")
	w := startWatch(t, path, WatchOptions{})
	if changed := receive(t, w.looks, "first look"); changed {
		t.Fatal("a missing file was told as a change")
	}
	must(t, os.MkdirAll(dir, 0o755))
	write(t, path, "one")
	w.wantChange("one")
}

func TestWatchReplacedDirectory(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "etc")
	path := filepath.Join(dir, "counters.csv")
	must(t, os.Mkdir(dir, 0o755))
	write(t, path, "one")
	w := startWatch(t, path, WatchOptions{})
	w.wantChange("one")
	must(t, os.Rename(dir, filepath.Join(root, "old")))
	must(t, os.Mkdir(dir, 0o755))
	write(t, path, "two")
	w.wantChange("two")
	must(t, os.RemoveAll(dir))
	must(t, os.Mkdir(dir, 0o755))
	write(t, path, "three")
	w.wantChange("three")
}

// configMap lays a volume out as the kubelet does.
type configMap struct {
	t   *testing.T
	dir string
	n   string // name of the directory in service
}

func (c *configMap) swap(n, content string) {
	c.t.Helper()
	must(c.t, os.Mkdir(filepath.Join(c.dir, n), 0o755))
	write(c.t, filepath.Join(c.dir, n, "counters.csv"), content)
	must(c.t, os.Symlink(n, filepath.Join(c.dir, "..data_tmp")))
	must(c.t, os.Rename(filepath.Join(c.dir, "..data_tmp"), filepath.Join(c.dir, "..data")))
	if c.n != "" {
		must(c.t, os.RemoveAll(filepath.Join(c.dir, c.n)))
	}
	c.n = n
}

func TestWatchConfigMapSwap(t *testing.T) {
	cm := &configMap{t: t, dir: t.TempDir()}
	cm.swap("..2026_01", "one")
	path := filepath.Join(cm.dir, "counters.csv")
	must(t, os.Symlink("..data/counters.csv", path))
	w := startWatch(t, path, WatchOptions{})
	w.wantChange("one")
	cm.swap("..2026_02", "two")
	w.wantChange("two")
	cm.swap("..2026_03", "three")
	w.wantChange("three")
}

func TestWatchThroughSymlinkedParents(t *testing.T) {
	root := t.TempDir()
	cm := &configMap{t: t, dir: filepath.Join(root, "volume")}
	must(t, os.Mkdir(cm.dir, 0o755))
	cm.swap("..2026_01", "one")
	must(t, os.Symlink("..data/counters.csv", filepath.Join(cm.dir, "counters.csv")))
	must(t, os.Symlink("volume", filepath.Join(root, "relative")))
	must(t, os.Symlink(filepath.Join(root, "relative"), filepath.Join(root, "absolute")))
	path := filepath.Join(root, "absolute", "counters.csv")
	w := startWatch(t, path, WatchOptions{})
	w.wantChange("one")
	cm.swap("..2026_02", "two")
	w.wantChange("two")

	// Now a link far from the file leads elsewhere.
	must(t, os.Mkdir(filepath.Join(root, "other"), 0o755))
	write(t, filepath.Join(root, "other", "counters.csv"), "three")
	must(t, os.Symlink("other", filepath.Join(root, "tmp")))
	must(t, os.Rename(filepath.Join(root, "tmp"), filepath.Join(root, "relative")))
	w.wantChange("three")
	write(t, filepath.Join(root, "other", "counters.csv"), "four")
	w.wantChange("four")
}

func TestWatchSymlinkLoop(t *testing.T) {
	path := filepath.Join(t.TempDir(), "counters.csv")
	must(t, os.Symlink("counters.csv", path))
	w := startWatch(t, path, WatchOptions{})
	if changed := receive(t, w.looks, "first look"); changed {
		t.Fatal("a link to itself was told as a change")
	}
	must(t, os.Remove(path))
	write(t, path, "one")
	w.wantChange("one")
}

func TestWatchPollsWhereNotifyIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "counters.csv")
	write(t, path, "one")
	core, logs := observer.New(zap.InfoLevel)
	refuse := func() (*fsnotify.Watcher, error) { return nil, syscall.EMFILE }
	w := startWatch(t, path, WatchOptions{Poll: time.Millisecond, Logger: zap.New(core), open: refuse})
	w.wantChange("one")
	for range 5 {
		receive(t, w.looks, "look")
	}
	write(t, path, "two")
	w.wantChange("two")
	entries := logs.FilterMessageSnippet("now and then").All()
	if len(entries) != 1 || len(logs.All()) != 1 {
		t.Fatalf("log has %d lines about polling of %d, want 1 of 1", len(entries), len(logs.All()))
	}
	if got := entries[0].ContextMap()["error"]; got != syscall.EMFILE.Error() {
		t.Errorf("the line says error=%v, want %v", got, syscall.EMFILE)
	}
}

// A watcher that is closed under our hands stands for one that can watch nothing.
func TestWatchFallsBackToPolling(t *testing.T) {
	path := filepath.Join(t.TempDir(), "counters.csv")
	write(t, path, "one")
	closed := func() (*fsnotify.Watcher, error) {
		n, err := fsnotify.NewWatcher()
		return n, errors.Join(err, n.Close())
	}
	w := startWatch(t, path, WatchOptions{Poll: time.Millisecond, open: closed})
	w.wantChange("one")
	write(t, path, "two")
	w.wantChange("two")
}

func TestFollow(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	must(t, os.MkdirAll(filepath.Join(root, "a", "b"), 0o755))
	write(t, filepath.Join(root, "a", "b", "file"), "")
	must(t, os.Symlink("../a/./b//file", filepath.Join(root, "a", "link")))
	r := follow(filepath.Join(root, "a", "link"))
	want := []string{filepath.Join(root, "a"), filepath.Join(root, "a", "b")}
	if len(r.dirs) != 2 || r.dirs[0] != want[0] || r.dirs[1] != want[1] {
		t.Errorf("follow(a/link).dirs = %q, want %q", r.dirs, want)
	}
	if r := follow(filepath.Join(root, "a", "none", "deep")); len(r.dirs) != 1 || r.dirs[0] != want[0] {
		t.Errorf("follow(a/none/deep).dirs = %q, want %q: the directory where the way ends", r.dirs, want[:1])
	}
}

func TestSettlerFiresUnderConstantPokes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const quiet = 200 * time.Millisecond
		s := newSettler(quiet)
		defer s.stop()
		start := time.Now()
		pokes := time.NewTicker(quiet / 2)
		defer pokes.Stop()
		s.poke()
		for {
			select {
			case <-pokes.C:
				s.poke()
				continue
			case <-s.timer.C:
			}
			break
		}
		if got, want := time.Since(start), 10*quiet; got != want {
			t.Errorf("a file that is written all the time is looked at after %v, want %v", got, want)
		}
		s.fired()
		s.poke()
		start = time.Now()
		<-s.timer.C
		if got := time.Since(start); got != quiet {
			t.Errorf("a single write is looked at after %v, want %v", got, quiet)
		}
	})
}
