package config

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"
)

// Times of a watcher.
const (
	watchQuiet = 200 * time.Millisecond // how long a file must not change before it is read
	watchMost  = 10 * watchQuiet        // a file that is written all the time is read after this
	watchPoll  = 5 * time.Second        // how often it is read without an event
)

// Watch calls onChange, from the calling goroutine, when the content of the file at path
// differs from what known returns: the content that the caller has read last, good or
// bad. It reads the file at once, then shortly after a change in its directory or in
// the one that its symbolic links lead to (a write in place, a rename over the file, a
// swap of a ConfigMap's ..data), and every few seconds for everything else: other links
// on the way, network and FUSE file systems, a system that is out of watches. A file
// that is gone is logged only. Watch returns nil when ctx ends.
func Watch(ctx context.Context, path string, log *zap.Logger, known func() []byte, onChange func()) error {
	w := &watcher{path: path, poll: watchPoll, log: log, known: known, onChange: onChange}
	return w.run(ctx)
}

type watcher struct {
	path     string
	poll     time.Duration
	log      *zap.Logger
	known    func() []byte
	onChange func()

	notify *fsnotify.Watcher // nil: only polling
	gone   bool              // the file could not be read the last time
}

func (w *watcher) run(ctx context.Context) error {
	var events <-chan fsnotify.Event
	var failures <-chan error
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		w.log.Warn("the system does not report file changes; the file is read from time to time",
			zap.String("file", w.path), zap.Duration("every", w.poll), zap.Error(err))
	} else {
		defer notify.Close() //nolint:errcheck // it holds nothing that could be lost
		w.notify, events, failures = notify, notify.Events, notify.Errors
	}
	poll := time.NewTicker(w.poll)
	defer poll.Stop()
	d := debounce{timer: time.NewTimer(0)} // the first read is at once
	defer d.timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-events:
			d.event()
		case err := <-failures: // of an overflow: events were lost
			w.log.Debug("watch file", zap.String("file", w.path), zap.Error(err))
			d.event()
		case <-poll.C:
			w.check()
		case <-d.timer.C:
			d.first = time.Time{}
			w.check()
		}
	}
}

// check reads the file and calls onChange if it is new. It sets the watches first, so
// that a change after the read makes an event.
func (w *watcher) check() {
	if w.notify != nil {
		w.watchDirectories()
	}
	data, err := os.ReadFile(w.path)
	switch {
	case err != nil && !w.gone:
		w.gone = true
		w.log.Warn("file cannot be read; its last content stays in use", zap.String("file", w.path), zap.Error(err))
	case err == nil && w.gone:
		w.gone = false
		w.log.Info("file can be read again", zap.String("file", w.path))
	}
	if err == nil && !bytes.Equal(data, w.known()) {
		w.onChange()
	}
}

// watchDirectories watches the directory of the path and that of the file behind its
// symbolic links, and no others. The poll covers what cannot be watched.
func (w *watcher) watchDirectories() {
	dirs := []string{filepath.Dir(w.path)}
	if file, err := filepath.EvalSymlinks(w.path); err == nil {
		dirs = append(dirs, filepath.Dir(file))
	}
	for _, old := range w.notify.WatchList() {
		if !slices.Contains(dirs, old) {
			_ = w.notify.Remove(old) // an error: the directory is gone, and its watch with it
		}
	}
	for _, d := range dirs {
		_ = w.notify.Add(d) // again, because the name may be another directory's now
	}
}

// debounce fires its timer when events have paused for watchQuiet, and after watchMost
// at the latest.
type debounce struct {
	timer *time.Timer
	first time.Time // event since the timer fired; zero: none
}

func (d *debounce) event() {
	now := time.Now()
	if d.first.IsZero() {
		d.first = now
	}
	d.timer.Reset(min(watchQuiet, max(0, d.first.Add(watchMost).Sub(now))))
}
