package arbiter

import (
	"slices"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/view"
)

// bridge stands between two speakers: the last rows of the one before, which stay
// until what the next one tells is newer. DCGM's values are as old as its watch
// interval; shown right after NVML's, they would be a step back in time. That a counter
// does not go back however late the engine is, is for the renderer to see to, which
// knows what it has shown.
type bridge struct {
	sources []*view.Source // of rows that no longer change
	from    int64          // Unix ns: the newest of their stamps
	span    time.Duration  // how long it may stand
	until   time.Time      // the end of that
}

// newBridge takes copies of the GPUs' rows in was that are not in will.
func newBridge(was, will []*view.Source, now time.Time, span time.Duration) *bridge {
	b := &bridge{span: span, until: now.Add(span)}
	for _, s := range was {
		if !slices.Contains(will, s) && hasGPU(s) {
			b.take(s)
		}
	}
	if len(b.sources) == 0 {
		return nil
	}
	return b
}

func (b *bridge) take(s *view.Source) {
	var row ring.Row
	if !readable(s) || !s.Ring.Latest(&row) {
		return
	}
	c := *s
	c.Ring = ring.Make(1, s.Ring.Stamps(), s.Ring.Cells())
	c.Ring.Append(row.Time, row.Stamps, row.Cells)
	b.sources = append(b.sources, &c)
	b.from = max(b.from, slices.Max(row.Stamps))
}

// over is next with the bridge's rows in place of what tells of the same devices.
func (b *bridge) over(next []*view.Source) []*view.Source {
	frozen := &view.View{Sources: b.sources}
	return compose(primary, frozen, &view.View{Sources: next})
}

// passed reports whether next's rows are newer by lag: those of all GPUs of the
// bridge that move. One that hangs holds up nobody.
func (b *bridge) passed(next []*view.Source, lag time.Duration, now time.Time, g *gaze) bool {
	if now.After(b.until) || now.UnixNano() < b.from-int64(b.span) { // the clock was set back
		return true
	}
	known := devicesOf(&view.View{Sources: b.sources})
	newer := false
	for _, s := range next {
		if !readable(s) || !overlaps(s, known) || !s.Ring.Latest(&g.row) {
			continue
		}
		for i, stamp := range g.row.Stamps {
			switch {
			case s.Devices[i].Level != field.GPU || !known[s.Devices[i].ID]:
			case stamp > b.from+int64(lag):
				newer = true
			case stamp > b.from-int64(b.span): // it moves, and is not there yet
				return false
			}
		}
	}
	return newer
}

// readable reports whether rows of s have the shape that s says.
func readable(s *view.Source) bool {
	return s.Ring != nil && s.Ring.Stamps() == len(s.Devices)
}

func hasGPU(s *view.Source) bool {
	return slices.ContainsFunc(s.Devices, func(d collector.Device) bool { return d.Level == field.GPU })
}
