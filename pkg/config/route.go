package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// maxLinks bounds how many symbolic links are followed, as the kernel does.
const maxLinks = 40

// route is what lies between a path and the file it leads to now.
type route struct {
	dirs  []string // directories in which a change of an entry can lead elsewhere
	names []string // those entries, and the directories themselves
}

// follow walks path component by component through all symbolic links. It stops
// at what does not exist; the directory in which it is missing is the last one.
func follow(path string) route {
	var r route
	abs, err := filepath.Abs(path)
	if err != nil { // the working directory is gone
		return r
	}
	at, rest := "/", components(abs)
	for links := 0; len(rest) > 0; {
		name := filepath.Join(at, rest[0])
		rest = rest[1:]
		info, err := os.Lstat(name)
		switch {
		case err != nil:
			r.add(at, name)
			return r
		case info.Mode()&fs.ModeSymlink != 0:
			r.add(at, name)
			target, err := os.Readlink(name)
			if links++; err != nil || links > maxLinks {
				return r
			}
			if filepath.IsAbs(target) {
				at = "/"
			}
			rest = append(components(target), rest...)
		case len(rest) == 0:
			r.add(at, name)
		default:
			at = name
		}
	}
	return r
}

func components(path string) []string {
	return slices.DeleteFunc(strings.Split(path, "/"), func(s string) bool { return s == "" || s == "." })
}

func (r *route) add(dir, name string) {
	r.dirs = append(r.dirs, dir)
	r.names = append(r.names, name, dir)
}

// aim watches the directories of the route to the file and no others. The route
// may change while it is being watched, so aim looks again until it stands.
func (w *watcher) aim() error {
	for range 8 {
		r := follow(w.path)
		if err := w.watchOnly(r.dirs); err != nil {
			return err
		}
		w.names = map[string]bool{}
		for _, n := range r.names {
			w.names[n] = true
		}
		if slices.Equal(follow(w.path).names, r.names) {
			return nil
		}
	}
	return nil // it changes all the time; events will tell
}

func (w *watcher) watchOnly(dirs []string) error {
	watched := 0
	for _, d := range dirs {
		// Adding again matters: the name may stand for another directory now.
		switch err := w.notify.Add(d); {
		case err == nil:
			watched++
		case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENOMEM):
			return err
		}
	}
	if watched == 0 {
		return errUnwatchable
	}
	for _, old := range w.notify.WatchList() {
		if !slices.Contains(dirs, old) {
			_ = w.notify.Remove(old) // it is gone already where this fails
		}
	}
	return nil
}

// settler delays a look until a file was left alone for a while, but not for
// ever: a file that is written all the time is looked at after ten whiles.
type settler struct {
	timer *time.Timer
	quiet time.Duration
	first time.Time // of the pokes since the timer fired; zero: none
}

func newSettler(quiet time.Duration) *settler {
	t := time.NewTimer(quiet)
	t.Stop()
	return &settler{timer: t, quiet: quiet}
}

func (s *settler) poke() {
	now := time.Now()
	if s.first.IsZero() {
		s.first = now
	}
	s.timer.Reset(min(s.quiet, max(0, s.first.Add(10*s.quiet).Sub(now))))
}

func (s *settler) fired() { s.first = time.Time{} }
func (s *settler) stop()  { s.timer.Stop() }
