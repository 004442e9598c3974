// Package file reads the files that an operator names: field lists, the web configuration, job files, scripts of
// simulated GPUs. By mistake or by an attack a path may lead to a FIFO without a writer, a device, an endless file or a
// file system whose server does not answer. So the package reads only regular files up to an expected size, and a
// Reader gives up after a few seconds.
//
// A Reader starts one goroutine per read. It ends with the read, or when the system answers.
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

// Errors in addition to the system's.
var (
	ErrNotRegular = errors.New("not a regular file")
	ErrTooLarge   = errors.New("too large")
	ErrHangs      = errors.New("the system does not answer")
)

const (
	patience = 5 * time.Second // limit for the system to open and read a file
	maxCalls = 8               // maximum running calls of a Reader, abandoned ones included
)

// Reader reads files of one purpose. It is safe for concurrent use.
type Reader struct {
	read  func(path string) ([]byte, error)
	calls chan struct{} // holds a token for each running call
}

// NewReader returns a Reader of files with at most limit bytes.
func NewReader(limit int64) *Reader {
	return &Reader{
		read:  func(path string) ([]byte, error) { return ReadIn(disk{}, path, limit) },
		calls: make(chan struct{}, maxCalls),
	}
}

// Read returns the content of a file. It waits until ctx ends, at most a few seconds, and then abandons the call. While
// too many abandoned calls are running, it starts no further call.
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

// directory opens files by name: an *os.Root, or disk.
type directory interface {
	Stat(name string) (fs.FileInfo, error)
	OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error)
}

type disk struct{}

func (disk) Stat(name string) (fs.FileInfo, error) { return os.Stat(name) }
func (disk) OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error) {
	return os.OpenFile(name, flag, perm)
}

// ReadIn returns the content of a file in a directory, usually an *os.Root. It waits for a file system, but never for a
// FIFO's writer, and never opens a device, because opening it could have side effects.
func ReadIn(from directory, name string, limit int64) ([]byte, error) {
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
	defer func() { _ = f.Close() }() // read only
	if info, err = f.Stat(); err != nil {
		return nil, err
	}
	if err := check(info, name, limit); err != nil { // it may have been replaced in the meantime
		return nil, err
	}
	_ = f.SetReadDeadline(time.Now().Add(patience)) // a few files of /proc block; other files have no deadline
	text, err := io.ReadAll(io.LimitReader(f, limit+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fmt.Errorf("%q: %w for %v", name, ErrHangs, patience)
	case err != nil:
		return nil, err
	case int64(len(text)) > limit: // it has grown, or its stated size is 0 as in /proc
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

// kind names the type of a file that is not regular.
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
