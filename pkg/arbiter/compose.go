package arbiter

import (
	"time"

	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/view"
)

// compose is what is shown: all of the speaker, and of the other what the
// speaker does not have. A source is shown whole or not at all.
func compose(s speaker, first, second *view.View) []*view.Source {
	out := make([]*view.Source, 0, len(first.Sources)+len(second.Sources))
	speaks, other := first, second
	if s == secondary {
		speaks, other = second, first
	}
	known := devicesOf(speaks)
	for _, v := range []*view.View{first, second} { // always in the order of priority
		for _, source := range v.Sources {
			if v != other || !overlaps(source, known) {
				out = append(out, source)
			}
		}
	}
	return out
}

// gpusOf is v without the sources that have no GPU.
func gpusOf(v *view.View) *view.View {
	out := &view.View{}
	for _, s := range v.Sources {
		if hasGPU(s) {
			out.Sources = append(out.Sources, s)
		}
	}
	return out
}

func devicesOf(v *view.View) map[string]bool {
	ids := map[string]bool{}
	for _, s := range v.Sources {
		for i := range s.Devices {
			ids[s.Devices[i].ID] = true
		}
	}
	return ids
}

// overlaps reports whether one of the source's devices is known.
func overlaps(s *view.Source, known map[string]bool) bool {
	for i := range s.Devices {
		if known[s.Devices[i].ID] {
			return true
		}
	}
	return false
}

// covered reports whether every board of the source is known.
func covered(s *view.Source, known map[string]bool) bool {
	for i := range s.Devices {
		if d := &s.Devices[i]; d.Level == field.GPU && !known[d.ID] {
			return false
		}
	}
	return true
}

// gaze reads rings. It keeps the buffers.
type gaze struct{ row ring.Row }

// newest is the time of the newest value of a GPU in v; zero if there is none. A
// time further ahead than patience is none: the clock was set back.
func (g *gaze) newest(v *view.View, now time.Time, patience time.Duration) time.Time {
	var newest int64
	for _, s := range v.Sources {
		if s.Ring == nil || s.Ring.Stamps() != len(s.Devices) || !s.Ring.Latest(&g.row) {
			continue
		}
		for i, stamp := range g.row.Stamps {
			if s.Devices[i].Level == field.GPU && stamp <= now.Add(patience).UnixNano() {
				newest = max(newest, stamp)
			}
		}
	}
	if newest == 0 {
		return time.Time{}
	}
	return time.Unix(0, newest)
}
