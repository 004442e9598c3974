package config

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"warpgauge/pkg/field"
	"warpgauge/pkg/file"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// slowPoll is for tests in which an event must be enough.
const slowPoll = time.Hour

// watched is a Watch under test with a caller that reads the file when it changes.
type watched struct {
	t       *testing.T
	inUse   atomic.Value  // the content that was read last; nil: it could not be read
	changes chan string   // contents, one for each onChange
	lost    chan error    // one for each onChange without a content
	checks  chan struct{} // one for each read of the file
}

func startWatch(t *testing.T, path string, poll time.Duration) *watched {
	t.Helper()
	t.Parallel()
	w := &watched{t: t, changes: make(chan string, 100), lost: make(chan error, 100), checks: make(chan struct{}, 10000)}
	w.inUse.Store([]byte("zero"))
	known := func() ([]byte, bool) {
		w.checks <- struct{}{}
		data := w.inUse.Load().([]byte)
		return data, data != nil
	}
	reader := file.NewReader(field.MaxFileBytes)
	onChange := func() {
		data, err := reader.Read(t.Context(), path)
		w.inUse.Store(data)
		if err != nil {
			w.lost <- err
			return
		}
		w.changes <- string(data)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- (&watcher{path: path, poll: poll, log: zap.NewNop(), known: known, onChange: onChange}).run(ctx)
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
	case <-time.After(time.Minute):
		t.Fatalf("no %s within a minute", what)
		panic("unreachable")
	}
}

// wantChange waits for a content. A write in place may be seen between its truncation
// and its end.
func (w *watched) wantChange(content string) {
	w.t.Helper()
	for {
		if got := receive(w.t, w.changes, "change to "+content); got == content {
			return
		} else if got != "" {
			w.t.Fatalf("changed to %q, want %q", got, content)
		}
	}
}

// wantCheck waits until the file was read once more, and wants no change of it.
func (w *watched) wantCheck(what string) {
	w.t.Helper()
	for len(w.checks) > 0 {
		<-w.checks
	}
	receive(w.t, w.checks, "read after "+what)
	if len(w.changes) > 0 {
		w.t.Fatalf("%s was reported as a change to %q", what, <-w.changes)
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
	w := startWatch(t, path, slowPoll)
	w.wantChange("one") // the file may have changed before
	write(t, path, "two")
	w.wantChange("two")
	write(t, path, "three")
	w.wantChange("three")
}

// TestWatchContentThatTheCallerHasReplaced: the caller reads the file between two
// checks, so the content of the first check is new again at the second.
func TestWatchContentThatTheCallerHasReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "counters.csv")
	write(t, path, "B")
	w := startWatch(t, path, slowPoll)
	w.wantChange("B")
	w.inUse.Store([]byte("A")) // the file held A for a moment, and was read then
	write(t, path, "B")
	w.wantChange("B")
}

func TestWatchRenameOver(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "counters.csv")
	write(t, path, "one")
	w := startWatch(t, path, slowPoll)
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
	w := startWatch(t, path, slowPoll)
	w.wantChange("one")
	write(t, filepath.Join(dir, "new"), "one")
	must(t, os.Rename(filepath.Join(dir, "new"), path))
	w.wantCheck("a file with the same content")
	must(t, os.Chtimes(path, time.Now(), time.Unix(1, 0)))
	w.wantCheck("another time stamp")
	write(t, path, "two")
	w.wantChange("two")
}

// TestWatchUnreadable: a file that is gone, or is no file any more, is reported once if
// that lasts, and its return even with the same content.
func TestWatchUnreadable(t *testing.T) {
	for what, spoil := range map[string]func(path string) error{
		"removed":     func(string) error { return nil },
		"a FIFO":      func(path string) error { return syscall.Mkfifo(path, 0o644) },
		"a directory": func(path string) error { return os.Mkdir(path, 0o755) },
		"a device":    func(path string) error { return os.Symlink("/dev/zero", path) },
		"too large": func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o644), os.Truncate(path, 10<<30))
		},
	} {
		t.Run(what, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "counters.csv")
			write(t, path, "one")
			w := startWatch(t, path, slowPoll)
			w.wantChange("one")
			must(t, os.Remove(path))
			must(t, spoil(path))
			if err := receive(t, w.lost, "report that it is "+what); !strings.Contains(err.Error(), path) {
				t.Errorf("%v, want the name of the file", err)
			}
			must(t, os.RemoveAll(path))
			write(t, path, "one")
			w.wantChange("one")
			if len(w.lost) > 0 {
				t.Errorf("reported again: %v", <-w.lost)
			}
		})
	}
}

func TestWatchReplacedDirectory(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "etc")
	path := filepath.Join(dir, "counters.csv")
	must(t, os.Mkdir(dir, 0o755))
	write(t, path, "one")
	w := startWatch(t, path, time.Millisecond)
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
	w := startWatch(t, path, slowPoll)
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
	w := startWatch(t, path, 50*time.Millisecond)
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

func TestDebounceUnderConstantEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := debounce{timer: time.NewTimer(time.Hour)}
		defer d.timer.Stop()
		start := time.Now()
		events := time.NewTicker(watchQuiet / 2)
		defer events.Stop()
		d.event()
		for {
			select {
			case <-events.C:
				d.event()
				continue
			case <-d.timer.C:
			}
			break
		}
		if got := time.Since(start); got != watchMost {
			t.Errorf("a file that is written all the time is read after %v, want %v", got, watchMost)
		}
		d.first = time.Time{}
		start = time.Now()
		d.event()
		<-d.timer.C
		if got := time.Since(start); got != watchQuiet {
			t.Errorf("a single write is read after %v, want %v", got, watchQuiet)
		}
	})
}

// TestWatchEmptyFile: a file that is being written is no change until it has content, or
// stays empty.
func TestWatchEmptyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "counters.csv")
	write(t, path, "one")
	w := startWatch(t, path, slowPoll)
	w.wantChange("one")
	write(t, path, "")
	w.wantCheck("truncation")
	write(t, path, "two")
	if got := receive(t, w.changes, "change to two"); got != "two" {
		t.Errorf("changed to %q, want two", got)
	}
	write(t, path, "\n")
	if got := receive(t, w.changes, "change to an empty file"); got != "\n" {
		t.Errorf("changed to %q, want a file that stays empty", got)
	}
}
