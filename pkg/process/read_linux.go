package process

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// readFile fills buf from the beginning of a file. os.File would allocate more
// for each of the hundreds of small files of a look than they hold.
func readFile(path string, buf []byte) (n int, err error) {
	fd, err := retry(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return 0, notFound(path, err)
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written
	for n < len(buf) {
		m, err := retry(func() (int, error) { return unix.Read(fd, buf[n:]) })
		if err != nil {
			return 0, notFound(path, err)
		}
		if m == 0 {
			break
		}
		n += m
	}
	return n, nil
}

func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// notFound maps what the kernel says of a process that has ended: ENOENT at open,
// ESRCH at read.
func notFound(path string, err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) {
		return errGone
	}
	return fmt.Errorf("read %q: %w", path, err)
}

// uptime is the time since the machine's start, in which processes' starts are told.
func uptime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
