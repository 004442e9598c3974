package exposition

import (
	"math"
	"time"

	"warpgauge/pkg/ring"
	"warpgauge/pkg/view"
)

// roster numbers the devices and cells of all sources of a View through.
type roster struct {
	cells   []int32 // per source: number of its first cell
	devices []int32 // per source: number of its first device
	first   []int32 // per device: the first device with the same ID, maybe itself
	earlier []int32 // per device: the next one before it with the same ID, or -1
}

func newRoster(v *view.View) *roster {
	r := &roster{}
	cells := 0
	type group struct{ first, last int32 }
	groups := map[string]group{}
	for _, s := range v.Sources {
		r.cells = append(r.cells, int32(cells))
		r.devices = append(r.devices, int32(len(r.first)))
		cells += len(s.Columns)
		for i := range s.Devices {
			d := int32(len(r.first))
			g, known := groups[s.Devices[i].ID]
			if !known || s.Devices[i].ID == "" {
				g = group{first: d, last: -1}
			}
			r.first = append(r.first, g.first)
			r.earlier = append(r.earlier, g.last)
			g.last = d
			groups[s.Devices[i].ID] = g
		}
	}
	return r
}

// at returns the numbers of a source's column and device.
func (r *roster) at(source, column, device int) (cell, dev int32) {
	return r.cells[source] + int32(column), r.devices[source] + int32(device)
}

// snapshot is the newest row of every ring, one after the other, and which
// devices belong on a page.
type snapshot struct {
	view    *view.View
	roster  *roster
	row     ring.Row // read into, so that a failed read leaves the last row alone
	cells   []float64
	stamps  []int64
	shares  []float64 // values of the shares that the layout was built for
	live    []bool    // the device has been sampled lately and no source before has it
	taken   []bool    // by device: it or one before it with the same ID is live
	expires int64     // Unix ns at which the next device becomes stale

	least []floor // of counters that another source has told before
}

// take reads the rings of v. All cells of a source come from one row.
func (s *snapshot) take(v *view.View, staleAfter time.Duration, now time.Time) {
	if s.view != v {
		s.reset(v, now)
	}
	s.expires = math.MaxInt64
	for i, source := range v.Sources {
		if source.Ring.Latest(&s.row) {
			copy(s.cells[s.roster.cells[i]:][:len(source.Columns)], s.row.Cells)
			copy(s.stamps[s.roster.devices[i]:][:len(source.Devices)], s.row.Stamps)
		} else if source.Ring.Head() != 0 {
			s.expires = 0 // lapped again and again: keep the row before, look again at once
		}
	}
	s.lift(now)
	s.judge(int64(staleAfter), now.UnixNano())
}

// judge decides which devices belong on a page. A stamp that lies as far ahead
// as a stale one lies behind is not fresh either: the clock was set back, or the
// process that writes the ring has gone mad, and the value could stay for ever.
func (s *snapshot) judge(staleAfter, now int64) {
	for d, stamp := range s.stamps {
		ends := stamp + staleAfter
		fresh := stamp != 0 && ends > now && stamp-staleAfter <= now
		if fresh {
			s.expires = min(s.expires, ends)
		}
		before := s.roster.earlier[d]
		shadowed := before >= 0 && s.taken[before]
		s.live[d] = fresh && !shadowed
		s.taken[d] = fresh || shadowed
	}
}

func (s *snapshot) reset(v *view.View, now time.Time) {
	r := newRoster(v)
	*s = snapshot{view: v, roster: r, row: s.row, least: s.floors(v, r, now)}
	cells, devices := 0, 0
	for _, source := range v.Sources {
		cells += len(source.Columns)
		devices += len(source.Devices)
	}
	s.cells = make([]float64, cells)
	s.stamps = make([]int64, devices)
	s.live = make([]bool, devices)
	s.taken = make([]bool, devices)
}
