// Package file reads the files that an operator names: field lists, the web
// configuration, job files, scripts of simulated GPUs. A path can lead to a FIFO without
// a writer, a device, a file without an end or a file system whose server is away, by
// mistake or by an attack. So only regular files are read, no larger than what is
// expected of them, and by a Reader for no longer than a few seconds.
//
// A Reader starts one goroutine for each read. It ends with the read, or when the system
// answers.
package file

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// What can be wrong with a file in addition to what the system reports.
var (
	ErrNotRegular = errors.New("not a regular file")
	ErrTooLarge   = errors.New("too large")
	ErrHangs      = errors.New("the system does not answer")
)

const (
	patience = 5 * time.Second // for the system to open and read a file
	maxCalls = 8               // of a Reader at a time, and so those that are abandoned
)

// Reader reads files of one purpose. It is safe for concurrent use.
type Reader struct {
	read  func(path string) ([]byte, error)
	calls chan struct{} // a token for each call that has not returned
}

// NewReader returns a Reader of files of at most that many bytes.
func NewReader(limit int64) *Reader {
	return &Reader{
		read:  func(path string) ([]byte, error) { return read(disk{}, path, limit) },
		calls: make(chan struct{}, maxCalls),
	}
}

// Read returns the content of a file. It waits for the system until ctx ends and for no
// longer than a few seconds; a call that has not returned then is abandoned. While many
// are, no other is begun.
func (r *Reader) Read(ctx context.Context, path string) ([]byte, error) {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	type result struct {
		data []byte
		err  error
	}
	done := make(chan result, 1)
	select {
	case r.calls <- struct{}{}:
		go func() {
			data, err := r.read(path)
			<-r.calls
			done <- result{data, err}
		}()
	case <-limited.Done():
	}
	select {
	case got := <-done:
		return got.data, got.err
	case <-limited.Done():
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%q: %w", path, ctx.Err())
	}
	return nil, fmt.Errorf("%q: %w for %v; is its file system on a network?", path, ErrHangs, patience)
}

// Hangs reports whether the system has not yet answered a call.
func (r *Reader) Hangs() bool { return len(r.calls) > 0 }

// ReadIn returns the content of a file below root, or why it is none that can be read. It
// waits for neither a FIFO nor a device, but for a file system it does.
func ReadIn(root *os.Root, name string, limit int64) ([]byte, error) { return read(root, name, limit) }

// directory is where names lead to files: an *os.Root, or disk.
type directory interface {
	Stat(name string) (fs.FileInfo, error)
	OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error)
}

type disk struct{}

func (disk) Stat(name string) (fs.FileInfo, error) { return os.Stat(name) }
func (disk) OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error) {
	return os.OpenFile(name, flag, perm)
}

// read never waits for a writer, and never opens a device, which can have effects.
func read(from directory, name string, limit int64) ([]byte, error) {
	info, err := from.Stat(name)
	if err != nil {
		return nil, err
	}
	if err := check(info, name, limit); err != nil {
		return nil, err
	}
	f, err := from.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	if info, err = f.Stat(); err != nil {
		return nil, err
	}
	if err := check(info, name, limit); err != nil { // it was replaced meanwhile
		return nil, err
	}
	_ = f.SetReadDeadline(time.Now().Add(patience)) // of the few files of /proc that wait; others have none
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fmt.Errorf("%q: %w for %v", name, ErrHangs, patience)
	case err != nil:
		return nil, err
	case int64(len(text)) > limit: // it has grown, or says that it is empty as those of /proc do
		return nil, fmt.Errorf("%q: %w, it has more than %d bytes", name, ErrTooLarge, limit)
	}
	return text, nil
}

func check(info fs.FileInfo, name string, limit int64) error {
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf("%q: %w but %s; only regular files are read", name, ErrNotRegular, kind(info.Mode()))
	case info.Size() > limit:
		return fmt.Errorf("%q: %w, it has %d bytes, and at most %d are read", name, ErrTooLarge, info.Size(), limit)
	}
	return nil
}

// kind names what is not a regular file.
func kind(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeNamedPipe != 0:
		return "a FIFO"
	case mode&fs.ModeDevice != 0:
		return "a device"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	}
	return "something else"
}
