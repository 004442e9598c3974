package hpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"syscall"
	"time"

	"go.uber.org/zap"
)

// looker is the goroutine that touches the file system.
type looker struct {
	*Client
	watch *watcher
	files map[string]*file
	tell  teller
	gone  time.Time // since when there has been no directory; zero: there is one
}

func newLooker(c *Client) *looker {
	return &looker{Client: c, files: map[string]*file{}, tell: newTeller(c.o.Health, c.o.Log)}
}

func (l *looker) run(ctx context.Context) {
	l.watch = newWatcher(l.o.Dir, l.o.notify, l.o.Log)
	defer l.watch.close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	due := time.Now()   // of the next look
	idle := time.Time{} // no look before this
	again := func(at time.Time) {
		due = earlier(at, due)
		timer.Reset(time.Until(later(due, idle)))
	}
	for {
		events, failures := l.watch.channels()
		select {
		case <-ctx.Done():
			return
		case e := <-events:
			if l.watch.matters(e) {
				again(time.Now().Add(gather))
			}
		case err := <-failures: // an overflow says that events were lost
			l.o.Log.Debug("watch job directory", zap.Error(err))
			again(time.Now().Add(gather))
		case <-timer.C:
			begin := time.Now()
			next := l.timedLook(begin)
			end := time.Now()
			idle = end.Add(min(end.Sub(begin)*idleShare, l.o.Period))
			due = time.Time{}
			again(earlier(end.Add(l.o.Period), next))
			l.o.looked()
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// timedLook lets Run see when the look began.
func (l *looker) timedLook(now time.Time) (again time.Time) {
	l.lookFrom.Store(max(1, int64(now.Sub(l.epoch))))
	defer l.lookFrom.Store(0)
	// First, so that what changes after the reading makes an event.
	l.watch.aim()
	return l.look(now)
}

// look reads the directory and publishes what it says.
func (l *looker) look(now time.Time) (again time.Time) {
	root, names, err := l.list()
	if err != nil {
		return l.unreadable(err, now)
	}
	defer func() { _ = root.Close() }() // it was only read
	l.gone = time.Time{}
	again = l.readAll(root, names, now)
	jobs := l.jobs()
	l.publish(jobs, now)
	l.settled.Store(!slices.ContainsFunc(slices.Collect(maps.Values(l.files)), func(f *file) bool { return !f.settled }))
	l.o.Health.Succeeded(len(jobs))
	l.tell.done()
	return again
}

// list opens the directory and returns the names of the job files in it. Nothing
// that is opened through root lies outside of the directory.
func (l *looker) list() (*os.Root, []string, error) {
	root, err := os.OpenRoot(l.o.Dir)
	if err != nil {
		return nil, nil, err
	}
	names, err := readNames(root)
	if err != nil {
		return nil, nil, errors.Join(err, root.Close())
	}
	return root, l.jobFiles(names), nil
}

func readNames(root *os.Root) ([]string, error) {
	dir, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }() // it was only read
	names, err := dir.Readdirnames(maxNames)
	if errors.Is(err, io.EOF) { // empty
		err = nil
	}
	return names, err
}

// jobFiles picks those with the lowest numbers if there are too many.
func (l *looker) jobFiles(names []string) []string {
	if len(names) == maxNames {
		l.tell.problem(ReasonManyFiles, names[len(names)-1], nil)
	}
	out := names[:0]
	for _, name := range names {
		switch nameOf(name) {
		case deviceName:
			out = append(out, name)
		case badName:
			l.tell.problem(ReasonBadName, name, nil)
		case otherName:
		}
	}
	slices.SortFunc(out, func(a, b string) int { return cmp.Or(compareNames(a, b), cmp.Compare(a, b)) })
	if len(out) > maxFiles {
		for _, name := range out[maxFiles:] {
			l.tell.problem(ReasonManyFiles, name, nil)
		}
		out = out[:maxFiles]
	}
	return out
}

// readAll brings l.files up to date; a file that is no longer there ends its jobs.
func (l *looker) readAll(root *os.Root, names []string, now time.Time) (again time.Time) {
	before := l.files
	l.files = make(map[string]*file, len(names))
	for _, name := range names {
		f := before[name]
		if f == nil {
			f = &file{}
		}
		at, err := f.look(root, name, now)
		if err != nil { // removed since the names were read
			continue
		}
		again = earlier(again, at)
		l.files[name] = f
		if f.content.reason != "" {
			l.tell.problem(f.content.reason, name, f.content.err)
		}
	}
	return again
}

func (l *looker) jobs() map[string][]string {
	out := map[string][]string{}
	for name, f := range l.files {
		if len(f.jobs) > 0 {
			out[name] = f.jobs
		}
	}
	return out
}

// unreadable keeps what was known. A directory that does not exist says that
// there are no jobs, but only if that lasts: it may be about to be replaced.
func (l *looker) unreadable(err error, now time.Time) (again time.Time) {
	defer l.settled.Store(true)
	if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		l.o.Health.Failed(reasonOf(err), fmt.Errorf("read the job directory: %w", err))
		return time.Time{}
	}
	l.o.Health.Failed(ReasonMissing, fmt.Errorf("read the job directory: %w; the scheduler's prolog makes it", err))
	if l.gone.IsZero() {
		l.gone = now
	}
	if now.Sub(l.gone) < grace {
		return l.gone.Add(grace)
	}
	clear(l.files)
	l.publish(map[string][]string{}, time.Time{})
	return time.Time{}
}

func (c *Client) errHangs() error {
	return fmt.Errorf("read the job directory %q: the system has not answered for %v", c.o.Dir, c.o.hung)
}
