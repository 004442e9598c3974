package api

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"sync/atomic"
	"time"

	"warpgauge/extensions/live/apiv1"
	"warpgauge/pkg/rows"
)

const (
	maxDownloads    = 4 // in parallel
	downloadTimeout = 5 * time.Minute
)

// recordings serves files with past samples.
type recordings struct {
	o         *Options
	downloads atomic.Int64
}

func (x *recordings) recorder() (rows.Recordings, error) {
	if r := x.o.Past.Recordings; r != nil && x.o.Download {
		return r, nil
	}
	return nil, &apiv1.Problem{Status: http.StatusNotFound, Detail: "nothing is recorded, or recordings are not served: see --recorder-directory and --web-page"}
}

// list returns the answer of /api/v1/recordings.
func (x *recordings) list() (*apiv1.Recordings, error) {
	from, err := x.recorder()
	if err != nil {
		return nil, err
	}
	out := &apiv1.Recordings{Recordings: []apiv1.Recording{}}
	for _, r := range from.Recordings() {
		out.Recordings = append(out.Recordings, apiv1.Recording(r))
	}
	return out, nil
}

// serve sends a file.
func (x *recordings) serve(w http.ResponseWriter, r *http.Request, _ *query) error {
	from, err := x.recorder()
	if err != nil {
		return err
	}
	defer x.downloads.Add(-1)
	if x.downloads.Add(1) > maxDownloads {
		return busy("recordings are being sent to others: ask again in a second")
	}
	name := r.PathValue("name")
	f, err := from.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return &apiv1.Problem{Status: http.StatusNotFound, Detail: fmt.Sprintf("there is no recording %q: %srecordings lists all", name, Prefix)}
	}
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
