package accumulate

import (
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/view"
)

// bind replaces the follows by those of v. A ring that stays is read on from
// where it was; the states of series are claimed from memory.
func (s *Store) bind(v *view.View) {
	old := make(map[*ring.Ring]*follow, len(s.follows))
	for _, f := range s.follows {
		old[f.source.Ring] = f
	}
	s.view, s.follows = v, make([]*follow, 0, len(v.Sources))
	s.memory.era++
	for _, src := range v.Sources {
		if !wellFormed(src) {
			continue
		}
		f := old[src.Ring]
		delete(old, src.Ring)
		s.follows = append(s.follows, s.newFollow(src, f))
	}
	for _, f := range old {
		s.goneOverruns += f.rows.Overruns()
	}
	s.memory.settle(s.axis.now)
}

// wellFormed reports whether the rows have the shape that the source promises.
func wellFormed(src *view.Source) bool {
	if src.Ring == nil || src.Ring.Stamps() != len(src.Devices) || src.Ring.Cells() != len(src.Columns) {
		return false
	}
	for _, c := range src.Columns {
		if c.Device < 0 || c.Device >= len(src.Devices) {
			return false
		}
	}
	return true
}

// newFollow binds src. earlier is the follow of the same ring in the last View,
// or nil.
func (s *Store) newFollow(src *view.Source, earlier *follow) *follow {
	f := &follow{source: src, devices: make([]deviceTap, len(src.Devices))}
	for i, d := range src.Devices {
		p, ok := claim(&s.memory, key{d.ID, stateProgress, ""}, always, func() *progress { return new(progress) })
		if ok {
			f.devices[i] = deviceTap{progress: p, resume: *p}
		}
	}
	if earlier == nil {
		s.lastID++
		f.id, f.rows = s.lastID, src.Ring.Follow()
	} else {
		f.id, f.rows = earlier.id, earlier.rows
		for i := range f.devices {
			if e := &earlier.devices[i]; e.progress != nil {
				f.devices[i].resume, f.devices[i].stamp = e.resume, e.stamp
			}
		}
	}
	for i := range src.Columns {
		if f.devices[src.Columns[i].Device].progress != nil {
			s.tap(f, i)
		}
	}
	return f
}

// tap connects a column to every series that is computed from it.
func (s *Store) tap(f *follow, cell int) {
	col := &f.source.Columns[cell]
	switch col.Field {
	case field.XIDEvent:
		s.tapXIDs(f, cell, col)
	case field.ClockEventReasons:
		s.tapClocks(f, cell, col)
	}
	for i := range f.source.Fields.Fields {
		if fd := &f.source.Fields.Fields[i]; fd.Type == field.Histogram && fd.Desc.ID == col.Field {
			s.tapHistogram(f, cell, col, fd)
		}
	}
}

func (s *Store) tapHistogram(f *follow, cell int, col *collector.Column, fd *field.Field) {
	h, ok := claim(&s.memory, keyOf(f.source.Devices[col.Device].ID, fd.Name, col.Labels),
		func(h *Histogram) bool { return h.fits(fd) },
		func() *Histogram { return newHistogram(fd) })
	if ok {
		f.histograms = append(f.histograms, histogramTap{h, col.Device, cell, field.NewScale(fd.Scale), fd, col.Labels})
	}
}

// tapXIDs connects an event column. The columns of a device, of which there may
// be several so that events of one tick do not hide each other, share a state.
func (s *Store) tapXIDs(f *follow, cell int, col *collector.Column) {
	for i := range f.xids {
		if t := &f.xids[i]; t.device == col.Device {
			t.cells = append(t.cells, cell)
			return
		}
	}
	fields := wanted(f.source.Fields, field.XIDErrorsCount, field.XIDErrorsTotal)
	if len(fields) == 0 {
		return
	}
	x, ok := claim(&s.memory, key{f.source.Devices[col.Device].ID, stateXIDs, ""},
		always, func() *xids { return newXIDs(s.xidWindow) })
	if ok {
		f.xids = append(f.xids, xidTap{x, col.Device, []int{cell}, fields})
	}
}

func (s *Store) tapClocks(f *follow, cell int, col *collector.Column) {
	fields := wanted(f.source.Fields, field.ClockEventsCount, field.ClockEventsTotal)
	if len(fields) == 0 {
		return
	}
	c, ok := claim(&s.memory, keyOf(f.source.Devices[col.Device].ID, stateClocks, col.Labels),
		always, func() *clocks { return newClocks(s.clockWindow) })
	if ok {
		f.clocks = append(f.clocks, clockTap{c, col.Device, cell, fields, col.Labels})
	}
}

// wanted returns the fields of the list with one of the ids, each name once.
func wanted(list field.List, ids ...field.ID) []*field.Field {
	var out []*field.Field
	for i := range list.Fields {
		f := &list.Fields[i]
		for _, id := range ids {
			if f.Desc.ID == id && f.Type != field.Label && !named(out, f.Name) {
				out = append(out, f)
			}
		}
	}
	return out
}

func named(fields []*field.Field, name string) bool {
	for _, f := range fields {
		if f.Name == name {
			return true
		}
	}
	return false
}
