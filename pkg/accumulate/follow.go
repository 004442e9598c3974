package accumulate

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/rows"
	"warpgauge/pkg/view"
)

// follow counts the rows of one source of the current View.
type follow struct {
	source *view.Source
	claims []int // states, by device

	histograms []histogramTap
	xids       []xidTap
	clocks     []clockTap
}

// Bind replaces the follows with those of another View. It reuses the existing states of series.
func (s *Store) Bind(v *view.View, sources []rows.Source, now time.Time) {
	s.Lock()
	defer s.Unlock()
	s.axis.advance(now)
	s.view, s.follows, s.changed = v, make([]*follow, 0, len(sources)), true
	s.bindings++
	for _, src := range sources {
		f := &follow{source: src.Source, claims: make([]int, len(src.Devices))}
		for i := range src.Columns {
			if src.Supplies[src.Columns[i].Device] {
				s.tap(f, i)
			}
		}
		s.follows = append(s.follows, f)
	}
	s.dropUnused()
}

// dropUnused drops states that the View does not use, in no order, until maxUnused are left.
func (s *Store) dropUnused() {
	unused := 0
	for _, states := range s.states {
		maps.DeleteFunc(states, func(_ key, h *held) bool {
			if h.binding != s.bindings {
				unused++
			}
			return h.binding != s.bindings && unused > maxUnused
		})
	}
}

// Forget drops the states of a device that the reader has forgotten.
func (s *Store) Forget(device string) {
	s.Lock()
	defer s.Unlock()
	delete(s.states, device)
	s.gaps.DeletePartialMatch(prometheus.Labels{"device": device})
}

// tap connects a column to every series that is computed from it.
func (s *Store) tap(f *follow, cell int) {
	col := &f.source.Columns[cell]
	if col.Buffer > 0 {
		return // in the block found by tapHistogram
	}
	switch col.Field {
	case field.XIDEvent, field.XIDsUntil:
		s.tapXIDs(f, col)
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
	h, ok := claim(s, f, col.Device, key{fd.Name, fmt.Sprintf("%q", col.Labels)},
		func(h *Histogram) bool { return h.fits(fd) },
		func() *Histogram { return newHistogram(fd) })
	if ok {
		f.histograms = append(f.histograms, histogramTap{h, col.Device, cell, f.block(col), 0, field.NewScale(fd.Scale), fd, col.Labels})
	}
}

// block returns the cells with a column's buffered samples, or none.
func (f *follow) block(of *collector.Column) cells {
	var out cells
	for i := range f.source.Columns {
		c := &f.source.Columns[i]
		if c.Device != of.Device || c.Field != of.Field || c.Buffer == 0 || c.Buffer != out.to-out.from+1 {
			continue
		}
		if c.Buffer == 1 {
			out.from, out.to = i, i
		}
		if i == out.to {
			out.to++
		}
	}
	if out.to-out.from < 2 {
		return cells{}
	}
	return out
}

// cells returns row's cells [from, to).
type cells struct{ from, to int }

func (s *Store) tapXIDs(f *follow, col *collector.Column) {
	if f.xidsOf(col.Device) != nil {
		return
	}
	fields := wanted(f.source.Fields, field.XIDErrorsCount, field.XIDErrorsTotal)
	if len(fields) == 0 {
		return
	}
	x, ok := claim(s, f, col.Device, key{stateXIDs, ""}, always, func() *xids { return newXIDs(s.xidWindow) })
	if ok {
		f.xids = append(f.xids, xidTap{x, col.Device, fields})
	}
}

func (f *follow) xidsOf(device int) *xidTap {
	if i := slices.IndexFunc(f.xids, func(t xidTap) bool { return t.device == device }); i >= 0 {
		return &f.xids[i]
	}
	return nil
}

func (s *Store) tapClocks(f *follow, cell int, col *collector.Column) {
	fields := wanted(f.source.Fields, field.ClockEventsCount, field.ClockEventsTotal)
	if len(fields) == 0 {
		return
	}
	c, ok := claim(s, f, col.Device, key{stateClocks, fmt.Sprintf("%q", col.Labels)}, always, func() *clocks { return newClocks(s.clockWindow) })
	if ok {
		f.clocks = append(f.clocks, clockTap{c, col.Device, cell, fields, col.Labels})
	}
}

// wanted returns the listed fields with one of the ids, each name once.
func wanted(list field.List, ids ...field.ID) []*field.Field {
	var out []*field.Field
	for i := range list.Fields {
		f := &list.Fields[i]
		if slices.Contains(ids, f.Desc.ID) && f.Type != field.Label && !slices.ContainsFunc(out, func(o *field.Field) bool { return o.Name == f.Name }) {
			out = append(out, f)
		}
	}
	return out
}

type histogramTap struct {
	*Histogram
	device, cell int
	block        cells   // with buffered samples, in place of cell
	silence      float64 // ms without a buffered sample
	scale        field.Scale
	field        *field.Field
	labels       []collector.Label
}

// maxSilence is how long, in ms, the driver may deliver no buffered samples before the histogram uses polled values.
const maxSilence = 5000

// silent reports whether the driver has delivered no buffered sample for long: it stopped making them, or refuses them.
func (t *histogramTap) silent(row *rows.Row, millis float64) bool {
	if row.Cells[t.block.from+1] > 0 {
		t.silence = 0
		return false
	}
	t.silence += millis
	return t.silence > maxSilence
}

// maxMillis bounds the time that one sample counts for.
const maxMillis = float64(time.Hour / time.Millisecond)

// add counts a value. It checks values again although the session drops implausible ones: another process can
// write to the shared memory, and a wrong sum stays.
func (t *histogramTap) add(v, millis float64) {
	if v >= t.field.Desc.Min && v <= t.field.Desc.Max && millis <= maxMillis {
		t.observe(t.scale.Of(v), millis)
	}
}

type xidTap struct {
	*xids
	device int
	fields []*field.Field
}

type clockTap struct {
	*clocks
	device, cell int
	fields       []*field.Field
	labels       []collector.Label
}

// Row counts a row.
func (s *Store) Row(row *rows.Row) {
	s.Lock()
	defer s.Unlock()
	s.rows++
	f := s.follows[row.Source]
	for i := range f.histograms {
		f.histograms[i].count(row)
	}
	for i := range f.xids {
		if t := &f.xids[i]; t.created == 0 && row.Devices[t.device].New {
			t.created = row.Time - int64(f.source.Interval) // the first row already holds the events since then
		}
	}
	for _, i := range row.Gaps {
		s.gaps.WithLabelValues(f.source.Collector, f.source.Devices[i].ID, f.source.Devices[i].GPU).Inc()
	}
	if len(row.XIDs)+len(row.Masks) > 0 {
		s.countEvents(f, row)
	}
}

func (s *Store) countEvents(f *follow, row *rows.Row) {
	s.axis.advance(row.Read)
	at := s.axis.position(row.Time)
	for _, x := range row.XIDs {
		if t := f.xidsOf(x.Device); t != nil {
			s.changed = t.count(x.Code, at, s.axis.now) || s.changed
		}
	}
	for _, m := range row.Masks {
		for i := range f.clocks {
			if t := &f.clocks[i]; t.cell == m.Cell {
				if !t.known {
					t.created = row.Time
				}
				t.observe(m.Value, at, s.axis.now)
			}
		}
	}
}

func (t *histogramTap) count(row *rows.Row) {
	d := &row.Devices[t.device]
	if !d.Sampled {
		return
	}
	if t.Created == 0 {
		t.Created = row.Time - int64(d.Millis*float64(time.Millisecond))
	}
	if t.block.to == 0 || t.silent(row, d.Millis) {
		t.add(row.Cells[t.cell], d.Millis)
		return
	}
	for at := t.block.from; at+1 < t.block.to && row.Cells[at+1] > 0; at += 2 {
		t.add(row.Cells[at], row.Cells[at+1])
	}
}
