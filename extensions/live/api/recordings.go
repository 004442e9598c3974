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

// Recorder supplies the recordings for /api/v1/recordings.
type Recorder interface {
	Recordings() []apiv1.Recording // newest first
	// Open opens a recording from Recordings by its name. The error wraps fs.ErrNotExist if it does
	// not exist.
	Open(name string) (io.ReadSeekCloser, error)
}

const (
	maxDownloads    = 4 // in parallel
	downloadTimeout = 5 * time.Minute
)

// recordings serves the files of a Recorder.
type recordings struct {
	recorder  Recorder // may be nil
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
	defer func() { _ = f.Close() }() // opened for reading only
	h := w.Header()
	h.Set("Content-Type", "application/zstd")
	h.Set("Content-Disposition", `attachment; filename="`+name+`"`)
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(downloadTimeout)) // a test's recorder has no deadlines
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
