//go:build unix

package file

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Lock locks the directory with a file of this name until the file is closed or the process ends. The file names the
// process, for the error of others.
func (p Private) Lock(name string) (*os.File, error) {
	root, err := p.Open()
	if err != nil {
		return nil, err
	}
	f, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600) // NFS locks only files that are open for writing
	if err = errors.Join(err, root.Close()); err != nil {
		return nil, fmt.Errorf("lock the directory of %s: %w", p.Of, err)
	}
	switch err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
	case errors.Is(err, syscall.EWOULDBLOCK):
		other, _ := io.ReadAll(io.LimitReader(f, 100))
		return nil, errors.Join(fmt.Errorf("another process uses the directory of %s %q: %s; name another with --%s", p.Of, p.Path, other, p.Flag), f.Close())
	case err != nil:
		return nil, errors.Join(fmt.Errorf("lock the directory of %s %q: %w", p.Of, p.Path, err), f.Close())
	}
	host, _ := os.Hostname()
	_ = f.Truncate(0)
	_, _ = fmt.Fprintf(f, "process %d on %s", os.Getpid(), host) // on a full disk the error of others names no process
	return f, nil
}

// ownerOf returns the user ID of a file's owner, -1 if unknown.
func ownerOf(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}
