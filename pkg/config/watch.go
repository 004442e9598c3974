package config

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"
)

// WatchOptions of Watch. The zero value is usable.
type WatchOptions struct {
	Debounce time.Duration // how long the file must be left alone before it is read; 0 means 200 ms
	// Poll is how often the file is read where the system does not tell of
	// changes; 0 means 5 s. Where it does, the file is read every 12 Polls all
	// the same, since network and FUSE file systems keep changes to themselves.
	Poll   time.Duration
	Logger *zap.Logger // nil logs nothing
	// Known returns what the caller has read from the file last, good or bad; it
	// is called from Watch's goroutine. Where the caller reads the file for other
	// reasons, too, what Watch told of last is not what is in use. nil means that
	// the caller reads it when it is told, and the first look tells of a change.
	Known func() []byte

	open    func() (*fsnotify.Watcher, error) // nil means fsnotify.NewWatcher
	checked func(changed bool)                // told after each look at the file
}

// pollsWhenTold is how many Polls lie between two unprompted looks at a file of
// whose changes the system tells.
const pollsWhenTold = 12

// Watch calls onChange, from the calling goroutine, whenever the content of the
// file at path is another than before: after a write in place, a rename over the
// file, a swap of a symbolic link anywhere on the way to it (a ConfigMap's
// ..data), or its return after a deletion. Before means what Known returns, or
// else what onChange was told of last; so what has changed before Watch began to
// watch is told, too. A file that is gone is told in the log only. Watch returns
// nil when ctx ends.
func Watch(ctx context.Context, path string, o WatchOptions, onChange func()) error {
	w := &watcher{path: path, o: o.withDefaults(), onChange: onChange}
	if err := w.start(); err != nil {
		w.o.Logger.Warn("the system does not tell of file changes; reading the file now and then instead",
			zap.String("file", path), zap.Duration("every", w.o.Poll), zap.Error(err))
	}
	defer w.stop()
	return w.run(ctx)
}

func (o WatchOptions) withDefaults() WatchOptions {
	o.Debounce = cmp.Or(o.Debounce, 200*time.Millisecond)
	o.Poll = cmp.Or(o.Poll, 5*time.Second)
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if o.open == nil {
		o.open = fsnotify.NewWatcher
	}
	if o.checked == nil {
		o.checked = func(bool) {}
	}
	return o
}

type watcher struct {
	path     string
	o        WatchOptions
	onChange func()

	notify *fsnotify.Watcher // nil: polling
	names  map[string]bool   // paths whose events matter
	last   fingerprint       // of the content that onChange was last told of; not used with Known
	gone   bool              // the last look found no readable file
}

// fingerprint tells contents apart; the zero value is that of no content.
type fingerprint [sha256.Size]byte

// start asks the system to tell of changes. After an error the watcher polls.
func (w *watcher) start() (err error) {
	if w.notify, err = w.o.open(); err != nil {
		w.notify = nil
		return err
	}
	if err := w.aim(); err != nil {
		w.stop()
		return err
	}
	return nil
}

func (w *watcher) stop() {
	if w.notify != nil {
		_ = w.notify.Close() // nothing is kept that could be lost
		w.notify = nil
	}
}

func (w *watcher) run(ctx context.Context) error {
	settle := newSettler(w.o.Debounce)
	defer settle.stop()
	poll := time.NewTicker(w.pollInterval())
	defer poll.Stop()
	settle.poke() // the first look
	for {
		events, failures := w.channels()
		select {
		case <-ctx.Done():
			return nil
		case e := <-events:
			if w.names[e.Name] {
				settle.poke()
			}
		case err := <-failures:
			w.o.Logger.Debug("watch file", zap.String("file", w.path), zap.Error(err))
			settle.poke() // an overflow says that events were lost
		case <-poll.C:
			w.look()
		case <-settle.timer.C:
			settle.fired()
			w.look()
			poll.Reset(w.pollInterval()) // looking may have ended in polling
		}
	}
}

func (w *watcher) pollInterval() time.Duration {
	if w.notify != nil {
		return w.o.Poll * pollsWhenTold
	}
	return w.o.Poll
}

func (w *watcher) channels() (<-chan fsnotify.Event, <-chan error) {
	if w.notify == nil {
		return nil, nil
	}
	return w.notify.Events, w.notify.Errors
}

// look reads the file and calls onChange if it is another than before. It aims
// first, so that a change after the reading makes an event.
func (w *watcher) look() {
	if w.notify != nil {
		if err := w.aim(); err != nil {
			w.o.Logger.Warn("the system no longer tells of file changes; reading the file now and then instead",
				zap.String("file", w.path), zap.Duration("every", w.o.Poll), zap.Error(err))
			w.stop()
		}
	}
	data, err := os.ReadFile(w.path)
	if err != nil {
		w.missing(err)
		w.o.checked(false)
		return
	}
	if w.gone {
		w.gone = false
		w.o.Logger.Info("file can be read again", zap.String("file", w.path))
	}
	changed := w.isNew(data)
	if changed {
		w.onChange()
	}
	w.o.checked(changed)
}

func (w *watcher) isNew(data []byte) bool {
	if w.o.Known != nil {
		return !bytes.Equal(data, w.o.Known())
	}
	sum := fingerprint(sha256.Sum256(data))
	changed := sum != w.last
	w.last = sum
	return changed
}

func (w *watcher) missing(err error) {
	if !w.gone {
		w.gone = true
		w.o.Logger.Warn("file cannot be read; what was read from it last stays in use",
			zap.String("file", w.path), zap.Error(err))
	}
}

// errUnwatchable says that no directory on the way to the file can be watched.
var errUnwatchable = errors.New("no directory on the way to the file can be watched")
