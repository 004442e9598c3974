//go:build linux && cgo

package dcgm

import (
	"fmt"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// hush notices a GPU of which every value has become blank. An engine goes on
// answering for one that fell off the bus, with a good status and new time stamps,
// and only no longer lists it as supported. It reads one field after the other, so
// that what was there goes in more than one read.
type hush struct {
	spoke  int64 // Unix µs: the newest time stamp of a block with values in this read, 0 none
	silent int64 // the same of blocks that have blanks alone now and had values
	gone   int   // values that those had at best
}

// hushLeast is how many values must have gone: one or two may be of a kind that
// comes and goes.
const hushLeast = 3

// errFellSilent makes the sampler look for devices at once.
var errFellSilent = fmt.Errorf("%w: every value that the host engine had of it is blank", collector.ErrDeviceLost)

// add takes what a block has of an entity. Profiling fields can be paused, and say
// nothing by being blank.
func (h *hush) add(b *block, e, values, blanks int, newest int64) {
	switch {
	case values > 0:
		b.spoke[e] = max(b.spoke[e], values)
		h.spoke = max(h.spoke, newest)
	case b.spoke[e] > 0 && blanks >= b.spoke[e] && !profiles(field.ID(b.fields[0])):
		h.gone += b.spoke[e]
		h.silent = max(h.silent, newest)
	}
}

// fell reports whether all is blank, or what is not is older than the blanks by a time
// in which it would have been read again: a block that is read seldom keeps what it had.
func (h *hush) fell(within time.Duration) bool {
	return h.gone >= hushLeast && h.silent-h.spoke > within.Microseconds()
}
