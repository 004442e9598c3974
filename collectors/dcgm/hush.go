//go:build linux && cgo

package dcgm

import (
	"fmt"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// hush notices a GPU of which every value has become blank. An engine goes on
// answering for one that fell off the bus, with a good status and new time stamps,
// and only no longer lists it as supported. It reads one field after the other, so
// that what was there goes in more than one read.
type hush struct {
	values int // there are in this read
	gone   int // there were at best, in blocks that have blanks alone now
}

// hushLeast is how many values must have gone: one or two may be of a kind that
// comes and goes.
const hushLeast = 3

// errFellSilent makes the sampler look for devices at once.
var errFellSilent = fmt.Errorf("%w: every value that the host engine had of it is blank", collector.ErrDeviceLost)

// add takes what a block has of an entity. Profiling fields can be paused, and say
// nothing by being blank.
func (h *hush) add(b *block, e, values, blanks int) {
	h.values += values
	switch {
	case values > 0:
		b.spoke[e] = max(b.spoke[e], values)
	case blanks >= b.spoke[e] && !profiles(field.ID(b.fields[0])):
		h.gone += b.spoke[e]
	}
}

func (h *hush) fell() bool { return h.values == 0 && h.gone >= hushLeast }
