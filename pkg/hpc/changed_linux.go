package hpc

import (
	"io/fs"
	"syscall"
	"time"
)

// changed is when the status changed last, which a program cannot set back as it
// can the time of modification: cp -p and rsync do that.
func changed(info fs.FileInfo) time.Time {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return time.Unix(st.Ctim.Unix())
	}
	return info.ModTime()
}
