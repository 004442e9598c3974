package exposition

import (
	"math"
	"slices"
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

// floor is the least that a cell shows until then.
type floor struct {
	cell  int32
	value float64
	until time.Time
}

// counterKey is a counter, whichever source tells it.
type counterKey struct {
	device string
	field  field.ID
	labels string
}

// counters calls f for each cell of v that is shown as a counter of a device.
func (r *roster) counters(v *view.View, f func(s *view.Source, key counterKey, cell, device int32)) {
	for i, s := range v.Sources {
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
			f(s, key, cell, device)
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

// floors returns what counters must not fall below in v, whose cells are numbered by
// r: what s shows of them by sources that v has no longer, and the floors of s that are
// not passed yet.
func (s *snapshot) floors(v *view.View, r *roster, now time.Time) (out []floor) {
	if s.view == nil {
		return nil
	}
	stays := make(map[*view.Source]bool, len(v.Sources))
	for _, source := range v.Sources {
		stays[source] = true
	}
	if len(s.least) == 0 && !slices.ContainsFunc(s.view.Sources, func(source *view.Source) bool { return !stays[source] }) {
		return nil
	}
	before := make(map[int32]floor, len(s.least))
	for _, f := range s.least {
		before[f.cell] = f
	}
	last := map[counterKey]floor{}
	s.roster.counters(s.view, func(source *view.Source, key counterKey, cell, device int32) {
		f, held := before[cell]
		if !stays[source] && s.live[device] && !math.IsNaN(s.cells[cell]) {
			f, held = floor{value: s.cells[cell], until: now.Add(floorSpan)}, true
		}
		if held {
			last[key] = f
		}
	})
	if len(last) == 0 {
		return nil
	}
	r.counters(v, func(_ *view.Source, key counterKey, cell, _ int32) {
		if f, counted := last[key]; counted {
			f.cell = cell
			out = append(out, f)
		}
	})
	return out
}

// lift raises cells to their floors, and forgets the floors that are passed.
func (s *snapshot) lift(now time.Time) {
	kept := s.least[:0]
	for _, f := range s.least {
		switch v := s.cells[f.cell]; {
		case v > f.value, now.After(f.until):
			continue
		case v < f.value:
			s.cells[f.cell] = f.value
		}
		kept = append(kept, f) // also for a blank, and for a row that could not be read anew
	}
	s.least = kept
}
