package exposition

import (
	"math"
	"time"

	"warpgauge/pkg/field"
	"warpgauge/pkg/view"
)

// Prometheus takes a counter that goes back for one that began anew, and adds all of
// it to every rate. So a counter does not go back because somebody else tells it now:
// where the next source of a device has counted less far than what was shown last (a
// host engine has read a moment earlier, by as much as it is late), that stays until
// the source has got there.

// floorSpan bounds how long: a counter that began anew at just that moment is shown
// as it is after that.
const floorSpan = 10 * time.Second

// floor is the least that a cell shows.
type floor struct {
	cell  int32
	value float64
}

// counterKey is a counter, whichever source tells it.
type counterKey struct {
	device string
	field  field.ID
	labels string
}

// counters calls f for each cell of the sources of v that are not in others, as far as
// it is shown as a counter of a device.
func (r *roster) counters(v *view.View, others map[*view.Source]bool, f func(key counterKey, cell, device int32)) {
	for i, s := range v.Sources {
		if others[s] {
			continue
		}
		shown := metricsByReading(s)
		for at := range s.Columns {
			c := &s.Columns[at]
			if c.Device < 0 || c.Device >= len(s.Devices) || !hasCounter(shown[c.Field]) {
				continue
			}
			key := counterKey{device: s.Devices[c.Device].ID, field: c.Field}
			for _, l := range c.Labels {
				key.labels += l.Name + "\x00" + l.Value + "\x00"
			}
			cell, device := r.at(i, at, c.Device)
			f(key, cell, device)
		}
	}
}

func hasCounter(fields []*field.Field) bool {
	for _, f := range fields {
		if f.Type == field.Counter {
			return true
		}
	}
	return false
}

func sourcesOf(v *view.View) map[*view.Source]bool {
	set := make(map[*view.Source]bool, len(v.Sources))
	for _, s := range v.Sources {
		set[s] = true
	}
	return set
}

// floors returns what counters that s shows by sources which v has no longer must not
// fall below in v, whose cells are numbered by r.
func (s *snapshot) floors(v *view.View, r *roster) (out []floor) {
	if s.view == nil {
		return nil
	}
	last := map[counterKey]float64{}
	s.roster.counters(s.view, sourcesOf(v), func(key counterKey, cell, device int32) {
		if s.live[device] && !math.IsNaN(s.cells[cell]) {
			last[key] = s.cells[cell]
		}
	})
	if len(last) == 0 {
		return nil
	}
	r.counters(v, sourcesOf(s.view), func(key counterKey, cell, _ int32) {
		if value, counted := last[key]; counted {
			out = append(out, floor{cell, value})
		}
	})
	return out
}

// lift raises cells to their floors, and forgets the floors that are passed.
func (s *snapshot) lift(now time.Time) {
	if len(s.least) == 0 {
		return
	}
	if now.After(s.leastUntil) {
		s.least = nil
		return
	}
	kept := s.least[:0]
	for _, f := range s.least {
		switch v := s.cells[f.cell]; {
		case v > f.value:
			continue
		case v < f.value:
			s.cells[f.cell] = f.value
		}
		kept = append(kept, f) // also for a blank, and for a row that could not be read anew
	}
	s.least = kept
}
