package rows

import (
	"io"
	"iter"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// Past is the door to the samples of the last minutes. The extension that keeps them sets the other fields when it
// starts; extensions before it set Wanted and read the fields when all have started.
type Past struct {
	Wanted     bool // samples are shown
	History    History
	MaxAge     time.Duration // age of the oldest samples
	Recordings Recordings    // nil: nothing is recorded
}

// History has the samples of the last minutes. Any goroutine may call its methods.
type History interface {
	// Series returns the series of a device and reading, ordered by their first value; "" and 0 match all.
	Series(device string, reading field.ID) []Series
	// Samples returns the samples of a series in [from, until), in Unix ms, oldest first: ascending times (events
	// can share one) and values, which are NaN for a blank reading. An unknown series has none.
	Samples(s Series, from, until int64) iter.Seq2[int64, float64]
}

// Series identifies a series. Samples from a driver's buffer have their own times, so they form a series separate
// from the readings (see collector.Buffer).
type Series struct {
	Device   string            `json:"device"`
	Field    field.ID          `json:"field"`
	Labels   []collector.Label `json:"labels,omitempty"` // distinguish series of the same device and field; sorted by name
	Buffered bool              `json:"buffered,omitempty"`
	Last     int64             `json:"-"` // time of the newest sample, ms
}

// Recordings are files with past samples. Any goroutine may call their methods.
type Recordings interface {
	Recordings() []Recording // newest first
	// Open opens a recording by its name. The error wraps fs.ErrNotExist if it does not exist.
	Open(name string) (io.ReadSeekCloser, error)
}

// Recording describes a file.
type Recording struct {
	Name   string    `json:"name"`
	Time   time.Time `json:"time"` // of the trigger
	Cause  string    `json:"cause"`
	Device string    `json:"device,omitempty"`
	From   time.Time `json:"from"`
	Until  time.Time `json:"until"`
	Bytes  int64     `json:"bytes"`
}
