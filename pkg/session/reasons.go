package session

import (
	"slices"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// maxAbsent bounds what one source says of absent fields.
const maxAbsent = MaxColumns

// reasons are what a source explains of the devices that are shown.
type reasons struct {
	explanations []collector.Explanation
	absent       []collector.Absence
	known        map[reasonKey]bool // of those that the session adds
}

type reasonKey struct {
	device int
	field  field.ID
}

// reasonsOf takes them from a source; shown is by device the one that is shown, or -1.
// What refers to nothing is left out.
func reasonsOf(src collector.Source, shown []int) (r reasons) {
	e, ok := src.(collector.Explainer)
	if !ok {
		return r
	}
	for _, x := range e.Explanations() {
		if len(r.explanations) == collector.MaxExplanations {
			break
		}
		if x.Detail = sound(x.Detail); !x.Reason.Valid() {
			x.Reason = collector.ReasonUnknown
		}
		r.explanations = append(r.explanations, x)
	}
	for _, a := range e.Absent() {
		if a.Device < 0 || a.Device >= len(shown) || shown[a.Device] < 0 || int(a.Explanation) >= len(r.explanations) || len(r.absent) == maxAbsent {
			continue
		}
		a.Device = shown[a.Device]
		r.absent = append(r.absent, a)
	}
	return r
}

// add says why a column of a shown device is not shown.
func (r *reasons) add(device int, id field.ID, e collector.Explanation) {
	key := reasonKey{device, id}
	if r.known[key] || len(r.absent) >= maxAbsent {
		return
	}
	n := slices.Index(r.explanations, e)
	if n < 0 {
		// The numbers that cells have stay what they are.
		if n = len(r.explanations); n >= collector.MaxExplanations {
			return
		}
		r.explanations = append(r.explanations, e)
	}
	if r.known == nil {
		r.known = make(map[reasonKey]bool)
	}
	r.known[key] = true
	r.absent = append(r.absent, collector.Absence{Device: device, Field: id, Explanation: uint16(n)})
}
