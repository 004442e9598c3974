package exposition

import (
	"math"
	"slices"
	"time"

	"warpgauge/pkg/field"
	"warpgauge/pkg/view"
)

// roster numbers the devices and cells of all sources of a View consecutively.
type roster struct {
	cells   []int32 // per source: number of its first cell
	devices []int32 // per source: number of its first device
	first   []int32 // per device: the first device with the same ID, maybe itself
	earlier []int32 // per device: the next one before it with the same ID, or -1
	total   int     // cells
}

func newRoster(v *view.View) *roster {
	r := &roster{}
	type group struct{ first, last int32 }
	groups := map[string]group{}
	for _, s := range v.Sources {
		r.cells = append(r.cells, int32(r.total))
		r.devices = append(r.devices, int32(len(r.first)))
		r.total += len(s.Columns)
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

// snapshot holds the newest row of every ring, one after the other, and which devices belong on a page.
// Layouts point into cells and shares.
type snapshot struct {
	view   *view.View
	roster *roster
	row    view.Row // read into, so that a failed read keeps the last row
	cells  []float64
	stamps []int64
	shares []float64 // values of the shares in the current layout
	// live has two entries for each device. The first is true if it has been sampled lately and no earlier source has
	// it. The second, at roster.event, is true if it shows its events: XIDs are valid for a stale device, too.
	live    []bool
	taken   []bool // by device: it or one before it with the same ID is live
	expires int64  // Unix ns at which the next device becomes stale

	floors []floor
	xids   map[string]float64 // the last XID of each device, from any session
}

// maxXIDs bounds the memory of devices that had an XID.
const maxXIDs = 4096

// event returns the number of a device's second entry in snapshot.live.
func (r *roster) event(device int32) int32 { return int32(len(r.first)) + device }

// firstOf returns the first device with the same ID as an entry's device in snapshot.live.
func (r *roster) firstOf(entry int32) int32 { return r.first[int(entry)%len(r.first)] }

// capture reads the rings of v. All cells of a source come from one row. If the writer is too fast to read,
// the previous row stays.
func (s *snapshot) capture(v *view.View, staleAfter time.Duration, now time.Time) {
	if s.view != v {
		s.reset(v, staleAfter, now)
	}
	s.readRings()
	s.applyFloors(now)
	s.markLive(staleAfter, now.UnixNano())
	s.xidCells(func(cell *float64, _ string, device int32) {
		if *cell == 0 && !s.live[device] {
			*cell = math.NaN() // the last XID of a stale device stays true, but zero may have become wrong
		}
	})
}

// markLive decides which devices belong on a page. A stamp that is too far in the future is not fresh either:
// the clock was set back, or the writer is faulty, and the value could stay for ever.
func (s *snapshot) markLive(limit time.Duration, now int64) {
	s.expires = math.MaxInt64
	source, end := -1, 0
	for d, stamp := range s.stamps {
		for d >= end {
			source++
			end += len(s.view.Sources[source].Devices)
		}
		of := s.view.Sources[source]
		staleAfter := int64(of.StaleAfter(d-end+len(of.Devices), limit))
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
	events := s.live[len(s.stamps):]
	clear(events)
	for d, first := range s.roster.first {
		if s.live[d] {
			events[d], s.taken[first] = true, true
		}
	}
	for d, first := range s.roster.first {
		if int(first) == d && !s.taken[d] { // no source has a fresh one
			events[d] = true
		}
	}
}

// xidCells calls f for the cell of each XID, with its device.
func (s *snapshot) xidCells(f func(cell *float64, id string, device int32)) {
	for i, source := range s.view.Sources {
		for at := range source.Columns {
			c := &source.Columns[at]
			if c.Field != field.XIDErrors || c.Device < 0 || c.Device >= len(source.Devices) {
				continue
			}
			cell, device := s.roster.at(i, at, c.Device)
			f(&s.cells[cell], source.Devices[c.Device].ID, device)
		}
	}
}

// rememberXIDs keeps the last XID of each device. It shows it if the current session, which began later, has not seen it.
func (s *snapshot) rememberXIDs() {
	s.xidCells(func(cell *float64, id string, _ int32) {
		last, known := s.xids[id]
		switch {
		case (math.IsNaN(*cell) || *cell == 0) && known:
			*cell = last
		case *cell > 0 && (known || len(s.xids) < maxXIDs):
			s.xids[id] = *cell
		}
	})
}

func (s *snapshot) readRings() {
	for i, source := range s.view.Sources {
		if source.Ring.Latest(&s.row) {
			copy(s.cells[s.roster.cells[i]:][:len(source.Columns)], s.row.Cells)
			copy(s.stamps[s.roster.devices[i]:][:len(source.Devices)], s.row.Stamps)
		}
	}
	s.rememberXIDs()
}

// reset begins the rows of another View. The last rows of a session may come after its last page; their XIDs
// are in no other row.
func (s *snapshot) reset(v *view.View, staleAfter time.Duration, now time.Time) {
	r := newRoster(v)
	floors := s.nextFloors(v, r, now.Add(2*staleAfter)) // from the values shown, not from those rows
	if s.view != nil {
		s.readRings()
	}
	*s = snapshot{view: v, roster: r, row: s.row, floors: floors, xids: s.xids}
	if s.xids == nil {
		s.xids = map[string]float64{}
	}
	s.cells = slices.Repeat([]float64{math.NaN()}, r.total) // until there is a row: 0 would be an XID
	s.stamps = make([]int64, len(r.first))
	s.live = make([]bool, 2*len(r.first))
	s.taken = make([]bool, len(r.first))
}

// floor is the minimum that a counter shows after a change of the View.
//
// Prometheus treats a counter that goes back as restarted, and adds all of it to every rate. The next source
// of a device may have read a counter up to an interval earlier than the last source (a DCGM engine and NVML
// never read at the same time). So the last shown value stays until the next source has passed it, for at
// most twice the stale age: a counter that is still lower then has been restarted, and shows its own value.
type floor struct {
	cell  int32
	least float64
	until time.Time
}

// counterKey is a counter of a device, in any source.
type counterKey struct {
	device string
	field  field.ID
	labels string
}

// nextFloors returns the floors of v, whose cells are numbered by r, from the shown values of the same counters in s.
func (s *snapshot) nextFloors(v *view.View, r *roster, until time.Time) (out []floor) {
	if s.view == nil {
		return nil
	}
	shown := map[counterKey]float64{}
	s.roster.counters(s.view, func(key counterKey, cell, device int32) {
		if s.live[device] && !math.IsNaN(s.cells[cell]) {
			shown[key] = s.cells[cell]
		}
	})
	r.counters(v, func(key counterKey, cell, _ int32) {
		if least, known := shown[key]; known {
			out = append(out, floor{cell, least, until})
		}
	})
	return out
}

// applyFloors raises cells to their floors, and drops the floors that are passed.
func (s *snapshot) applyFloors(now time.Time) {
	kept := s.floors[:0]
	for _, f := range s.floors {
		v := s.cells[f.cell]
		if v > f.least || !now.Before(f.until) {
			continue
		}
		if v < f.least { // a blank stays a blank
			s.cells[f.cell] = f.least
		}
		kept = append(kept, f)
	}
	s.floors = kept
}

// counters calls f for each cell of v that is shown as a counter of a device.
func (r *roster) counters(v *view.View, f func(key counterKey, cell, device int32)) {
	counts := func(f *field.Field) bool {
		use, _ := f.Desc.Use() // a list can call a rate a counter
		return f.Type == field.Counter && use == field.Counter
	}
	for i, s := range v.Sources {
		shown := metricsByReading(s)
		for at := range s.Columns {
			c := &s.Columns[at]
			if c.Device < 0 || c.Device >= len(s.Devices) || c.Buffer > 0 || !slices.ContainsFunc(shown[c.Field], counts) && !s.Fields.Dialect.Counts(c.Field) {
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
