package arbiter

import (
	"math"
	"slices"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/view"
)

// bridge stands between two speakers: the last rows of the one before, which stay
// until what the next one tells is newer. DCGM's values are as old as its watch
// interval, and older where the engine is late; shown right after NVML's, its counters
// would go back, which Prometheus takes for a reset and adds the whole counter to
// every rate.
type bridge struct {
	sources  []*view.Source // of rows that no longer change
	counters map[reading]float64
	from     int64         // Unix ns: the newest of their stamps
	span     time.Duration // how long it may stand
	until    time.Time     // the end of that
}

// reading is one cell of whichever source tells it.
type reading struct {
	device string
	field  field.ID
	labels string
}

func readingOf(s *view.Source, c *collector.Column) reading {
	r := reading{device: s.Devices[c.Device].ID, field: c.Field}
	for _, l := range c.Labels {
		r.labels += l.Name + "=" + l.Value + "\x00"
	}
	return r
}

// newBridge takes copies of the GPUs' rows in was that are not in will.
func newBridge(was, will []*view.Source, now time.Time, span time.Duration) *bridge {
	b := &bridge{span: span, until: now.Add(span), counters: map[reading]float64{}}
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
	for _, f := range s.Fields.Fields {
		for i := range s.Columns {
			if v := row.Cells[i]; f.Type == field.Counter && s.Columns[i].Field == f.Desc.ID && !math.IsNaN(v) {
				b.counters[readingOf(s, &s.Columns[i])] = v
			}
		}
	}
}

// over is next with the bridge's rows in place of what tells of the same devices.
func (b *bridge) over(next []*view.Source) []*view.Source {
	frozen := &view.View{Sources: b.sources}
	return compose(primary, frozen, &view.View{Sources: next})
}

// passed reports whether next's rows are newer by lag, and no counter in them is
// behind: those of all GPUs of the bridge that move. One that hangs holds up nobody.
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
		if b.ahead(s, &g.row, b.from+int64(lag)) {
			return false
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

// ahead reports whether the bridge has counted further than a row of s has, on a
// device whose stamp is newer than since.
func (b *bridge) ahead(s *view.Source, row *ring.Row, since int64) bool {
	for i := range s.Columns {
		c := &s.Columns[i]
		if row.Stamps[c.Device] <= since {
			continue
		}
		if before, counted := b.counters[readingOf(s, c)]; counted && row.Cells[i] < before {
			return true
		}
	}
	return false
}

// readable reports whether rows of s have the shape that s says.
func readable(s *view.Source) bool {
	return s.Ring != nil && s.Ring.Stamps() == len(s.Devices) && s.Ring.Cells() == len(s.Columns)
}

func hasGPU(s *view.Source) bool {
	return slices.ContainsFunc(s.Devices, func(d collector.Device) bool { return d.Level == field.GPU })
}
