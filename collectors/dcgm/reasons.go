//go:build linux && cgo

package dcgm

import (
	"cmp"
	"math"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// blanks holds the NaNs for missing values, by reason.
type blanks struct {
	bySentinel [sentinels]float64
	byStatus   map[status]float64
	unread     float64
	gone       float64
}

func newBlanks(a *collector.Absences) blanks {
	b := blanks{
		bySentinel: [sentinels]float64{
			noSentinel:           a.Blank(collector.ReasonBlank, "the host engine has a value that is not a number"),
			sentinelBlank:        a.Blank(collector.ReasonBlank, "the host engine has a blank"),
			sentinelNotFound:     a.Blank(collector.ReasonBlank, "the host engine has not found it"),
			sentinelNotSupported: a.Blank(collector.ReasonUnsupported, "the host engine says that the device does not support it"),
			sentinelNotPermitted: a.Blank(collector.ReasonPermission, "the driver refuses it to the host engine, which has to run as root"),
		},
		byStatus: map[status]float64{},
		unread:   a.Blank(collector.ReasonNotDue, "the host engine has not read it yet"),
		gone:     a.Blank(collector.ReasonBlank, "the host engine no longer reads it: its time stamp does not move"),
	}
	for s := range meanings {
		e := meaningOf(s)
		b.byStatus[s] = a.Blank(e.Reason, e.Detail)
	}
	return b
}

// placeholder returns the blank for a cell without a value. It allocates nothing.
func (b *blanks) placeholder(c *cell, gone bool) float64 {
	switch {
	case c.status != statusOK && c.status != statusNoData && c.status != statusNotWatched:
		if v, known := b.byStatus[c.status]; known {
			return v
		}
		return math.NaN()
	case c.micros == 0:
		return b.unread
	case gone:
		return b.gone
	}
	return b.bySentinel[c.sentinel]
}

// meaningOf explains the engine's status of a field.
func meaningOf(s status) collector.Explanation {
	e := collector.Explanation{Reason: cmp.Or(meanings[s].reason, collector.ReasonBlank), Detail: "the host engine answers: " + s.Error()}
	if s == statusNoPermission {
		e.Detail += "; it has to run as root"
	}
	return e
}

// complete explains which fields of the list the source lacks.
func (s *source) complete(list []field.Reading, refused refusals) {
	s.Complete(s.devices, s.columns, list, func(device int, d *field.Descriptor) collector.Explanation {
		if e, foreign := collector.ForeignReading(d, field.VendorNVIDIA); foreign {
			return e
		}
		id := d.ID
		if id == field.XIDEvent {
			id = field.XIDErrors
		}
		if why, is := refused[uint16(id)]; is {
			return meaningOf(why)
		}
		e := collector.Explanation{Reason: collector.ReasonUnsupported}
		switch {
		case field.IsXID(d.ID):
			e.Detail = "the host engine does not report XIDs of it"
		case d.ID == field.GPUHealth:
			e.Detail = "the host engine does not watch health of it"
		case d.ID == field.P2PStatus:
			e.Detail = "there is no other GPU, or the library lacks dcgmGetNvLinkP2PStatus"
		case d.ID >= field.FirstExporter: // not a field of DCGM's
			e.Reason, e.Detail = collector.ReasonOtherCollector, "DCGM does not have it, the collector nvml may"
		case !askable(d):
			e.Detail = "DCGM does not have it"
		default:
			e.Detail = "DCGM does not have it for this kind of device (" + s.devices[device].Level.String() + ")"
		}
		return e
	})
}
