//go:build !linux

package process

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"time"
)

func readFile(path string, buf []byte) (int, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, errGone
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	n, err := io.ReadFull(f, buf)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return n, err
}

func uptime() time.Duration { return 0 }
