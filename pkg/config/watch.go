package config

import (
	"bytes"
	"context"
	"errors"
	"time"

	"warpgauge/pkg/field"
	"warpgauge/pkg/file"
)

const (
	watchEvery = time.Second // how often a watched file is read
	watchPause = time.Minute // the longest pause while reads hang: the path may lead elsewhere by then
)

// Watch calls onChange, on its own goroutine, when the content of the file at path differs from known. known returns the
// content that the caller has read last, good or bad, and whether it was readable. Watch reads the file once a second, so it
// handles all kinds of writes, renames, links, file systems and ConfigMap swaps in the same way. Two reads in a row must
// agree, to skip a file that is being written or replaced. Watch returns nil when ctx ends, even if the file system hangs.
func Watch(ctx context.Context, path string, known func() ([]byte, bool), onChange func()) error {
	files := file.NewReader(field.MaxFileBytes)
	pause := watchEvery
	var last []byte // the last read, if it differed from known and onChange was not called
	differed, failed := false, false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		data, err := files.Read(ctx, path)
		if pause = min(2*pause, watchPause); !errors.Is(err, file.ErrHangs) {
			pause = watchEvery
		}
		if ctx.Err() != nil {
			continue
		}
		was, readable := known()
		again := differed && failed == (err != nil) && bytes.Equal(data, last)
		differed = readable != (err == nil) || err == nil && !bytes.Equal(data, was)
		last, failed = data, err != nil
		if differed && again {
			differed = false
			onChange()
		}
	}
}
