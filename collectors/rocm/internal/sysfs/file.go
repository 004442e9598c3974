package sysfs

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// Errors of Read in addition to the system's, created once.
var (
	ErrAbsent = errors.New("no such file")               // missing, or not opened again yet
	ErrGone   = errors.New("file is of a device gone")   // it was removed while open
	ErrHuge   = errors.New("file is larger than it may") // it does not fit the buffer
)

// absentFor is how long File waits before it tries to open a missing file again. A missing file rarely appears later, and
// opening costs more than reading.
const absentFor = 10 * time.Second

// File is a file that stays open. Each read begins at its start, so the driver prints the file again.
type File struct {
	path  string
	fd    int
	again time.Time // earliest time to open a missing file
}

// NewFile returns the file at path. The first read opens it.
func NewFile(path string) File { return File{path: path, fd: -1} }

// Read reads from an offset to the end of the file or of buf. now is the time of the tick. Errors: ErrAbsent, ErrGone, or a
// syscall.Errno. amdgpu returns EPERM and EBUSY during a reset, and EOPNOTSUPP if the board lacks the value. After ErrGone
// the file is closed, and the next Read opens it again.
func (f *File) Read(buf []byte, offset int64, now time.Time) ([]byte, error) {
	if err := f.open(now); err != nil {
		return nil, err
	}
	n, err := pread(f.fd, buf, offset)
	switch {
	case err == nil && n == 0 && offset == 0 && f.removed(), removedBy(err):
		f.Close()
		return nil, ErrGone
	case err != nil:
		return nil, err
	}
	return buf[:n], nil
}

func (f *File) open(now time.Time) error {
	if f.fd >= 0 {
		return nil
	}
	if now.Before(f.again) {
		return ErrAbsent
	}
	fd, err := retry(func() (int, error) { return syscall.Open(f.path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0) })
	if err == nil {
		f.fd = fd
		return nil
	}
	f.again = now.Add(absentFor)
	if removedBy(err) || errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return ErrAbsent
	}
	return err
}

// Forget closes the file. The next Read opens it again.
func (f *File) Forget() {
	f.Close()
	f.again = time.Time{}
}

// Close closes the file. It can be called twice.
func (f *File) Close() {
	if f.fd < 0 {
		return
	}
	_ = syscall.Close(f.fd) // read only: nothing is lost
	f.fd = -1
}

// removed reports whether the open file has been unlinked.
func (f *File) removed() bool {
	var st syscall.Stat_t
	return syscall.Fstat(f.fd, &st) == nil && st.Nlink == 0
}

// removedBy reports whether an error means that the device is gone: the kernel returns ENODEV for every file of a
// removed device.
func removedBy(err error) bool {
	return errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.ENXIO) || errors.Is(err, syscall.ESTALE)
}

// pread reads at an offset. Tests block readers with pipes, which have no offsets.
func pread(fd int, buf []byte, offset int64) (int, error) {
	return retry(func() (int, error) {
		n, err := syscall.Pread(fd, buf, offset)
		if errors.Is(err, syscall.ESPIPE) {
			n, err = syscall.Read(fd, buf)
		}
		return n, err
	})
}

func retry(f func() (int, error)) (int, error) {
	for {
		n, err := f()
		if !errors.Is(err, syscall.EINTR) {
			return n, err
		}
	}
}
