package session

import (
	"slices"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// reasons holds a source's explanations for the selected devices.
type reasons struct {
	explanations []collector.Explanation
	absent       []collector.Absence // at most MaxColumns
}

// reasonKey is a reading of a device.
type reasonKey struct {
	device int
	field  field.ID
}

// reasonsOf copies the explanations of a source. shown maps its devices to selected devices, or -1. It drops invalid
// references.
func reasonsOf(src collector.Source, shown []int) (r reasons) {
	e, ok := src.(collector.Explainer)
	if !ok {
		return r
	}
	all := e.Explanations()
	for _, x := range all[:min(len(all), collector.MaxExplanations)] {
		if x.Detail = sound(x.Detail); !x.Reason.Valid() {
			x.Reason = collector.ReasonUnknown
		}
		r.explanations = append(r.explanations, x)
	}
	for _, a := range e.Absent() {
		if a.Device < 0 || a.Device >= len(shown) || shown[a.Device] < 0 || int(a.Explanation) >= len(r.explanations) || len(r.absent) == MaxColumns {
			continue
		}
		a.Device = shown[a.Device]
		r.absent = append(r.absent, a)
	}
	return r
}

// addReason records why a column of a selected device is not shown.
func (r *reasons) addReason(device int, id field.ID, e collector.Explanation) {
	n := slices.Index(r.explanations, e)
	if n < 0 {
		// The numbers in cells must stay valid.
		if n = len(r.explanations); n >= collector.MaxExplanations {
			return
		}
		r.explanations = append(r.explanations, e)
	}
	if a := (collector.Absence{Device: device, Field: id, Explanation: uint16(n)}); len(r.absent) < MaxColumns {
		r.absent = append(r.absent, a)
	}
}
