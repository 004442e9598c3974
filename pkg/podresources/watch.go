package podresources

import (
	"os"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"
)

// watch tells when a kubelet may have made its socket anew. It watches the
// socket's directory, or while that is missing the nearest one above it. It never
// needs to be right: a look compares the socket itself.
type watch struct {
	socket string
	notify *fsnotify.Watcher // nil: the system tells nothing
	at     string            // the directory that is watched; empty: none
	dir    os.FileInfo       // of at, when it began to be watched
	next   string            // what appears there when the socket does
}

func newWatch(socket string, open func() (*fsnotify.Watcher, error), log *zap.Logger) *watch {
	w := &watch{socket: filepath.Clean(socket)}
	notify, err := open()
	if err != nil {
		log.Warn("the system does not tell when the kubelet restarts; its socket is looked at now and then instead", zap.String("file", socket), zap.Error(err))
		return w
	}
	w.notify = notify
	return w
}

func (w *watch) close() {
	if w.notify != nil {
		_ = w.notify.Close() // nothing is kept that could be lost
	}
}

// channels are nil, and so block, where the system tells nothing.
func (w *watch) channels() (<-chan fsnotify.Event, <-chan error) {
	if w.notify == nil {
		return nil, nil
	}
	return w.notify.Events, w.notify.Errors
}

// matters says whether an event is worth a look.
func (w *watch) matters(e fsnotify.Event) bool {
	switch e.Name {
	case w.next:
		return e.Has(fsnotify.Create)
	case w.at: // the directory went away; another may be in its place
		return e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename)
	}
	return false
}

// aim watches the right directory: one that was replaced, or mounted over, has
// its name but is another.
func (w *watch) aim() {
	if w.notify == nil {
		return
	}
	for {
		at, next, dir := nearest(w.socket)
		if dir == nil || w.at == at && os.SameFile(w.dir, dir) {
			return
		}
		if w.at != "" {
			_ = w.notify.Remove(w.at) // gone by itself where the directory is
		}
		w.at, w.next, w.dir = at, next, dir
		if w.notify.Add(at) != nil {
			w.at = "" // gone again, or not ours to read: the next look tries again
			return
		}
		// What appeared below before the watch began has made no event: look again.
	}
}

// nearest is the lowest directory on the way to the socket that exists, and what
// is missing in it; nil where there is none.
func nearest(socket string) (at, next string, dir os.FileInfo) {
	for next = socket; ; next = at {
		at = filepath.Dir(next)
		dir, err := os.Stat(at)
		if err == nil && dir.IsDir() {
			return at, next, dir
		}
		if at == next {
			return "", "", nil
		}
	}
}
