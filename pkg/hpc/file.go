package hpc

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// file is what is known of one job file.
//
// Nobody tells when a writer has finished. What can be known is that the status
// and the content have not changed for a while, that the last line has its end,
// and that a file which was renamed into place changes no more. So each content
// has to stand still before it is believed, longer if its last line has no end;
// what the file said before stays meanwhile, for at most grace.
type file struct {
	jobs []string // believed

	info    fs.FileInfo // status of the last reading; nil: never read
	content content     // of the last reading
	since   time.Time   // when that status and content were first seen
	from    time.Time   // when what is believed was first contradicted
	settled bool        // jobs are those of content
	sure    bool        // the status tells that the content is the same
}

// look reads the file if it may have changed and returns when to look again; the
// zero time means that there is nothing to wait for.
func (f *file) look(root *os.Root, name string, now time.Time) (again time.Time, err error) {
	info, err := root.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, err
	}
	if err != nil || f.info == nil || !f.sure || !same(info, f.info) {
		f.read(root, name, now, info, err)
	}
	return f.believe(now), nil
}

// read takes the file's content. A status that has just changed is no proof that
// the content stays: two writes within one tick of the file system's clock, and
// of one length, leave the same status. Therefore the file is read anew at each
// look until the status has stood for longer than any such clock's tick.
func (f *file) read(root *os.Root, name string, now time.Time, info fs.FileInfo, err error) {
	var c content
	stable := true
	switch {
	case err != nil:
		c = unusable(err)
	case !info.Mode().IsRegular():
		c = content{reason: ReasonNotAFile, whole: true}
	default:
		info, c, stable = readFile(root, name)
	}
	if f.info == nil && f.since.IsZero() || !stable || !same(info, f.info) || !c.equal(f.content) {
		if f.settled || f.from.IsZero() {
			f.from = now
		}
		f.since, f.settled = now, false
	}
	f.info, f.content = info, c
	f.sure = info != nil && now.Sub(f.since) >= raciness
}

// readFile reads name without ever waiting for a writer of a FIFO or for a
// device. stable is false if the file changed meanwhile.
func readFile(root *os.Root, name string) (info fs.FileInfo, c content, stable bool) {
	h, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, unusable(err), true
	}
	defer func() { _ = h.Close() }() // it was only read
	if info, err = h.Stat(); err != nil {
		return nil, unusable(err), true
	}
	if !info.Mode().IsRegular() { // replaced since its status was asked for
		return info, content{reason: ReasonNotAFile, whole: true}, true
	}
	if info.Size() > maxSize {
		return info, content{reason: ReasonTooLarge, whole: true}, true
	}
	text, err := io.ReadAll(io.LimitReader(h, maxSize+1))
	if err != nil {
		return info, unusable(err), true
	}
	if len(text) > maxSize {
		return info, content{reason: ReasonTooLarge, whole: true}, false
	}
	after, err := h.Stat()
	return info, parse(text), err == nil && same(after, info)
}

// unusable is the content of a file that the system does not let us read.
func unusable(err error) content {
	c := content{reason: reasonOf(err), err: err, whole: true}
	var errno syscall.Errno
	switch {
	case !errors.As(err, &errno): // os.Root refuses a link that leads out of the directory; its error has no name
		c.reason = ReasonNotAFile
	case errno == syscall.ELOOP, errno == syscall.ENOTDIR, errno == syscall.ENXIO: // a link to nowhere, a socket
		c.reason = ReasonNotAFile
	}
	return c
}

func reasonOf(err error) string {
	if errors.Is(err, fs.ErrPermission) {
		return ReasonDenied
	}
	return ReasonIO
}

// believe takes over the content if it has stood for long enough.
func (f *file) believe(now time.Time) (again time.Time) {
	if f.settled {
		return f.soon(now)
	}
	stood, contradicted := now.Sub(f.since), now.Sub(f.from)
	need := f.need()
	switch {
	case f.content.reason == ReasonIO && f.content.whole:
		// Not an answer: what was said before stays, however long it takes.
		return f.soon(now)
	case stood >= need || f.old():
		f.jobs, f.settled = f.content.all(), true
	case contradicted >= grace:
		// It changes all the time; its last line may be half written.
		f.jobs, f.settled = f.content.jobs, true
	default:
		return earlier(f.since.Add(need), f.from.Add(grace))
	}
	return f.soon(now)
}

func (f *file) need() time.Duration {
	switch {
	case f.content.whole:
		return grace
	case f.content.open:
		return patience
	}
	return quiet
}

// old reports whether nothing has written to the file for a long time, as when
// the exporter is started beside jobs that run.
func (f *file) old() bool {
	if f.info == nil || f.content.whole {
		return false
	}
	age := time.Since(changed(f.info)) // by the clock of the file system; on a network one that is the server's
	return age >= aged
}

// soon makes sure that there is a look after which the status is proof.
func (f *file) soon(now time.Time) time.Time {
	if f.sure || f.info == nil {
		return time.Time{}
	}
	return now.Add(max(quiet, raciness-now.Sub(f.since)))
}

// same reports whether two statuses are of one unchanged file.
func same(a, b fs.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Mode() == b.Mode() && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime()) && changed(a).Equal(changed(b))
}

// earlier ignores the zero time.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
