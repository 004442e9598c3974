package hpc

import (
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"
)

// watcher hears of changes where the system tells of them: in the directory, and
// in the directories that hold it and the link to it, so that it is seen to come,
// to be replaced and to be linked anew. What it misses, the next regular look
// sees. It belongs to one goroutine.
type watcher struct {
	dir    string // as the user named it
	real   string // where links lead; empty while there is none
	log    *zap.Logger
	notify *fsnotify.Watcher      // nil: the system tells nothing
	aims   map[string]fs.FileInfo // by path: what is watched there
	told   bool                   // that a directory cannot be watched
}

func newWatcher(dir string, open func() (*fsnotify.Watcher, error), log *zap.Logger) *watcher {
	w := &watcher{dir: filepath.Clean(dir), log: log, aims: map[string]fs.FileInfo{}}
	var err error
	if w.notify, err = open(); err != nil {
		w.notify = nil
		w.log.Warn("the system does not tell of changes in the job directory; looking now and then instead", zap.Error(err))
	}
	return w
}

func (w *watcher) close() {
	if w.notify != nil {
		_ = w.notify.Close() // nothing is kept that could be lost
	}
}

func (w *watcher) channels() (<-chan fsnotify.Event, <-chan error) {
	if w.notify == nil {
		return nil, nil
	}
	return w.notify.Events, w.notify.Errors
}

// aim watches what has come, or has taken the place of what was watched.
func (w *watcher) aim() {
	if w.notify == nil {
		return
	}
	want := map[string]bool{filepath.Dir(w.dir): true}
	w.real = ""
	if to, err := filepath.EvalSymlinks(w.dir); err == nil {
		w.real = to
		want[to], want[filepath.Dir(to)] = true, true
	}
	for path := range w.aims {
		if !want[path] {
			w.forget(path)
		}
	}
	for path := range want {
		w.aimAt(path)
	}
}

func (w *watcher) aimAt(path string) {
	info, err := os.Stat(path)
	if err != nil {
		w.forget(path)
		return
	}
	if old := w.aims[path]; old != nil && os.SameFile(old, info) {
		return
	}
	w.forget(path)
	if err := w.notify.Add(path); err != nil {
		if !w.told {
			w.told = true
			w.log.Warn("the system does not tell of changes in a directory; looking now and then instead", zap.String("file", path), zap.Error(err))
		}
		return
	}
	w.aims[path] = info
}

func (w *watcher) forget(path string) {
	if w.aims[path] != nil {
		delete(w.aims, path)
		_ = w.notify.Remove(path) // the system may have dropped it already
	}
}

// matters reports whether an event can change what the directory says.
func (w *watcher) matters(e fsnotify.Event) bool {
	if e.Name == w.dir || e.Name == w.real {
		// An inode's number may be given to its successor, so that it would look
		// the same although the watch went with the old one.
		delete(w.aims, w.real)
		return true
	}
	return filepath.Dir(e.Name) == w.real && nameOf(filepath.Base(e.Name)) == deviceName
}
