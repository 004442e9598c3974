//go:build unix

package file

import (
	"io/fs"
	"syscall"
)

// ownerOf returns the user ID of a file's owner, -1 if unknown.
func ownerOf(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}
