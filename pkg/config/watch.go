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
	watchPause = time.Minute // the longest pause while reads hang: the path may lead elsewhere meanwhile
)

// Watch calls onChange, from the calling goroutine, when the content of the file at path
// differs from the result of known: the content that the caller has read last, good or
// bad, and whether it could be read at all. It reads the file once a second, so that a write in
// place, a rename over the file, a swap of a ConfigMap's ..data, and links and file systems of all
// kinds are the same. Two reads in a row must differ from known: a file that is being written, or
// about to be replaced, is no change. Watch returns nil when ctx ends, whatever the file system does.
func Watch(ctx context.Context, path string, known func() ([]byte, bool), onChange func()) error {
	files := file.NewReader(field.MaxFileBytes)
	pause := watchEvery
	timer := time.NewTimer(pause)
	defer timer.Stop()
	differed := false // at the last read, and onChange was not called for it
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		data, err := files.Read(ctx, path)
		if pause = min(2*pause, watchPause); !errors.Is(err, file.ErrHangs) {
			pause = watchEvery
		}
		timer.Reset(pause)
		if ctx.Err() != nil {
			return nil
		}
		was, readable := known()
		switch differs := readable != (err == nil) || err == nil && !bytes.Equal(data, was); {
		case !differs:
			differed = false
		case !differed:
			differed = true
		default:
			differed = false
			onChange()
		}
	}
}
