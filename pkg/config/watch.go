package config

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"

	"warpgauge/pkg/field"
	"warpgauge/pkg/file"
)

// Times of a watcher.
const (
	watchQuiet = 200 * time.Millisecond // how long a file must not change before it is read
	watchMost  = 10 * watchQuiet        // a file that is written all the time is read after this
	watchPoll  = 5 * time.Second        // how often it is read without an event
)

// Watch calls onChange, from the calling goroutine, when the content of the file at path
// differs from the result of known: the content that the caller has read last, good or
// bad, and whether it could be read at all. It reads the file at once, then shortly after
// a change in its directory or in the one that its symbolic links lead to (a write in
// place, a rename over the file, a swap of a ConfigMap's ..data), and every few seconds for
// everything else: other links on the way, network and FUSE file systems, a system that is
// out of watches. A file that cannot be read is a change if that lasts. Watch returns nil
// when ctx ends, whatever the file system does.
func Watch(ctx context.Context, path string, log *zap.Logger, known func() ([]byte, bool), onChange func()) error {
	w := &watcher{path: path, poll: watchPoll, log: log, known: known, onChange: onChange}
	return w.run(ctx)
}

type watcher struct {
	path     string
	poll     time.Duration
	log      *zap.Logger
	known    func() ([]byte, bool)
	onChange func()

	files  *file.Reader
	notify *fsnotify.Watcher // nil: only polling
	failed bool              // the last read did or found nothing, and onChange has not been called for it
}

func (w *watcher) run(ctx context.Context) error {
	w.files = file.NewReader(field.MaxFileBytes)
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
	check := func() {
		if w.check(ctx); w.failed {
			d.timer.Reset(watchMost)
		}
	}
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
			if !w.files.Hangs() { // an event may still say that the path leads elsewhere now
				check()
			}
		case <-d.timer.C:
			d.first = time.Time{}
			check()
		}
	}
}

// check reads the file and calls onChange if it is new, or cannot be read or is empty for
// the second time: it may have been about to be replaced.
func (w *watcher) check(ctx context.Context) {
	data, err := w.read(ctx)
	if ctx.Err() != nil {
		return
	}
	was, readable := w.known()
	if err == nil && readable && bytes.Equal(data, was) || err != nil && !readable {
		w.failed = false
		return
	}
	written := err == nil && len(bytes.TrimSpace(data)) == 0 // a file that is written in place is empty for a moment
	if w.failed = (err != nil || written) && !w.failed; !w.failed {
		w.onChange()
	}
}

// read returns the content of the file. It asks for a report of the next change, but only
// if the file system answers: nothing limits the time of those calls.
func (w *watcher) read(ctx context.Context) ([]byte, error) {
	data, err := w.files.Read(ctx, w.path)
	if w.notify == nil || errors.Is(err, file.ErrHangs) || ctx.Err() != nil || !w.watchDirectories() {
		return data, err
	}
	return w.files.Read(ctx, w.path) // what changed before the directories were watched was not reported
}

// watchDirectories watches the directory of the path and that of the file behind its
// symbolic links, and no others, and reports whether one of them was not watched before.
// The poll covers what cannot be watched.
func (w *watcher) watchDirectories() (more bool) {
	dirs := []string{filepath.Dir(w.path)}
	if file, err := filepath.EvalSymlinks(w.path); err == nil {
		dirs = append(dirs, filepath.Dir(file))
	}
	watched := w.notify.WatchList()
	for _, old := range watched {
		if !slices.Contains(dirs, old) {
			_ = w.notify.Remove(old) // an error: the directory is gone, and its watch with it
		}
	}
	for _, d := range dirs {
		err := w.notify.Add(d) // again, because the name may be another directory's now
		more = more || err == nil && !slices.Contains(watched, d)
	}
	return more
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
