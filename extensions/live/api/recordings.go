package api

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"warpgauge/extensions/live/apiv1"
)

// Recorder has the recordings that /api/v1/recordings lists: the flight recorder.
type Recorder interface {
	Recordings() []apiv1.Recording // the newest first
	// Open opens a recording by its name, one that Recordings could return. An error that
	// wraps fs.ErrNotExist says that there is none.
	Open(name string) (io.ReadSeekCloser, error)
}

const (
	maxDownloads    = 4 // at a time
	downloadTimeout = 5 * time.Minute
)

// recordings serves what a Recorder has.
type recordings struct {
	recorder  Recorder // nil: there is none
	downloads atomic.Int64
}

func noRecorder() *apiv1.Problem {
	return &apiv1.Problem{Status: http.StatusNotFound, Detail: "nothing is recorded, or recordings are not served: see --recorder-directory and --web-page"}
}

// serve sends a file.
func (x *recordings) serve(w http.ResponseWriter, r *http.Request, _ *query) error {
	if x.recorder == nil {
		return noRecorder()
	}
	if x.downloads.Add(1) > maxDownloads {
		x.downloads.Add(-1)
		return busy("recordings are being sent to others: ask again in a second")
	}
	defer x.downloads.Add(-1)
	name := r.PathValue("name")
	f, err := x.open(name)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	h := w.Header()
	h.Set("Content-Type", "application/zstd")
	h.Set("Content-Disposition", `attachment; filename="`+name+`"`)
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(downloadTimeout)) // a recorder has none
	http.ServeContent(w, r, "", time.Time{}, f)
	return nil
}

func (x *recordings) open(name string) (io.ReadSeekCloser, error) {
	if name != filepath.Base(name) || strings.HasPrefix(name, ".") || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == '"' || r >= 0x7f }) {
		return nil, noRecording(name)
	}
	f, err := x.recorder.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, noRecording(name)
	}
	return f, err
}

func noRecording(name string) *apiv1.Problem {
	return &apiv1.Problem{Status: http.StatusNotFound, Detail: fmt.Sprintf("there is no recording %q: %srecordings has those there are", name, Prefix)}
}
