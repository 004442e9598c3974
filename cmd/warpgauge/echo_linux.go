package main

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// crowded reports whether to is a pipe that is half full of what has not been read.
// Our own log goes the same way and must not get stuck behind a library's.
func crowded(to io.Writer) bool {
	f, ok := to.(*os.File)
	if !ok {
		return false
	}
	if st, err := f.Stat(); err != nil || st.Mode()&os.ModeNamedPipe == 0 {
		return false
	}
	waiting, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCINQ)
	size, errSize := unix.FcntlInt(f.Fd(), unix.F_GETPIPE_SZ, 0)
	return err == nil && errSize == nil && waiting > size/2
}
