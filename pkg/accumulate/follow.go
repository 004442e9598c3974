package accumulate

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/view"
)

// follow reads one ring of the current View and feeds its rows to the states.
type follow struct {
	source  *view.Source
	rows    *ring.Follower
	devices []deviceTap // as Source.Devices
	// before is the number of the first row that came after the ring was bound. A source
	// that takes over from another one, such as DCGM when it answers again, may have
	// sampled all the while: of the rows before, those that are not newer than what was
	// counted are skipped.
	before uint64

	histograms []histogramTap
	xids       []xidTap
	since      []sinceTap
	clocks     []clockTap
	last       []lastTap
	gaps       prometheus.Counter // nil: the source says nothing of gaps
}

// maxOverlap bounds how long the rings of two sources can hold the same instants. A
// time further back than this is a clock that was set back.
const maxOverlap = int64(10 * time.Minute)

// deviceTap says for a device of a follow which rows are new.
type deviceTap struct {
	*progress         // nil if another source of the View supplies the device
	last      int64   // stamp of the device in the last row read
	sampled   bool    // the device was sampled in the row in hand
	millis    float64 // for which its values in the row in hand stand
	news      bool    // events in the row in hand are new
}

// progress is how far the rows of a device have been counted, through all rings
// that it had.
type progress struct {
	stamp int64 // the device's, of the last row counted
	time  int64 // of the last row read
	gap   gap   // the last one in its XIDs
}

// gap is a time from which the sources that were followed have no XIDs of a device, Unix µs.
// A source with a history, which was not followed meanwhile, may have them.
type gap struct{ from, to float64 }

// bind replaces the follows by those of v. A ring that stays is read on from
// where it was; the states of series are claimed from those there are.
func (s *Store) bind(v *view.View) {
	old := make(map[*ring.Ring]*follow, len(s.follows))
	for _, f := range s.follows {
		old[f.source.Ring] = f
	}
	s.view, s.follows = v, make([]*follow, 0, len(v.Sources))
	s.states.view++
	for _, src := range v.Sources {
		if !src.WellFormed() {
			continue
		}
		f := old[src.Ring]
		delete(old, src.Ring)
		s.follows = append(s.follows, s.newFollow(src, f))
	}
	for _, f := range old {
		s.goneOverruns += f.rows.Overruns()
	}
	s.states.bound(s.axis.now)
}

// newFollow binds src. earlier is the follow of the same ring in the last View,
// or nil.
func (s *Store) newFollow(src *view.Source, earlier *follow) *follow {
	f := &follow{source: src, devices: make([]deviceTap, len(src.Devices))}
	if earlier == nil {
		f.rows, f.before = src.Ring.Follow(), src.Ring.Head()
	} else {
		f.rows, f.before = earlier.rows, earlier.before
	}
	for i, d := range src.Devices {
		if p, ok := claim(&s.states, key{d.ID, stateProgress, ""}, always, func() *progress { return new(progress) }); ok {
			f.devices[i].progress = p
		}
		if earlier != nil {
			f.devices[i].last = earlier.devices[i].last
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
	if col.Buffer > 0 {
		return // of the block that tapHistogram finds
	}
	switch col.Field {
	case field.XIDEvent, field.XIDsUntil:
		s.tapXIDs(f, cell, col)
	case field.XIDsSince:
		f.since = append(f.since, sinceTap{device: col.Device, cell: cell, last: math.NaN()})
		f.gaps = s.gaps.WithLabelValues(f.source.Collector)
	case field.ClockEventReasons:
		s.tapClocks(f, cell, col)
	case field.XIDErrors:
		s.tapLast(f, cell, col)
	}
	for i := range f.source.Fields.Fields {
		if fd := &f.source.Fields.Fields[i]; fd.Type == field.Histogram && fd.Desc.ID == col.Field {
			s.tapHistogram(f, cell, col, fd)
		}
	}
}

func (s *Store) tapHistogram(f *follow, cell int, col *collector.Column, fd *field.Field) {
	h, ok := claim(&s.states, keyOf(f.source.Devices[col.Device].ID, fd.Name, col.Labels),
		func(h *Histogram) bool { return h.fits(fd) },
		func() *Histogram { return newHistogram(fd) })
	if ok {
		f.histograms = append(f.histograms, histogramTap{h, col.Device, cell, f.block(col), 0, field.NewScale(fd.Scale), fd, col.Labels})
	}
}

// block returns the cells with the buffered samples of a column, none if there are not
// any.
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

// cells are those of a row from one index to before another.
type cells struct{ from, to int }

// tapXIDs connects an event column. The columns of a device, of which there may
// be several so that events of one tick do not hide each other, share a state.
func (s *Store) tapXIDs(f *follow, cell int, col *collector.Column) {
	for i := range f.xids {
		if t := &f.xids[i]; t.device == col.Device {
			t.add(cell, col.Field)
			return
		}
	}
	fields := wanted(f.source.Fields, field.XIDErrorsCount, field.XIDErrorsTotal)
	if len(fields) == 0 && s.event == nil {
		return
	}
	x, ok := claim(&s.states, key{f.source.Devices[col.Device].ID, stateXIDs, ""},
		always, func() *xids { return newXIDs(s.xidWindow) })
	if ok {
		t := xidTap{xids: x, device: col.Device, until: -1, fields: fields}
		t.add(cell, col.Field)
		f.xids = append(f.xids, t)
	}
}

func (s *Store) tapClocks(f *follow, cell int, col *collector.Column) {
	fields := wanted(f.source.Fields, field.ClockEventsCount, field.ClockEventsTotal)
	if len(fields) == 0 && s.event == nil {
		return
	}
	c, ok := claim(&s.states, keyOf(f.source.Devices[col.Device].ID, stateClocks, col.Labels),
		always, func() *clocks { return newClocks(s.clockWindow) })
	if ok {
		f.clocks = append(f.clocks, clockTap{c, col.Device, cell, fields, col.Labels})
	}
}

// tapLast connects the column with the last XID. If a source reports no XIDs one by one, that
// there is another one is all that is known.
func (s *Store) tapLast(f *follow, cell int, col *collector.Column) {
	if s.event == nil || slices.ContainsFunc(f.source.Columns, func(c collector.Column) bool { return c.Device == col.Device && c.Field == field.XIDEvent }) {
		return
	}
	last, ok := claim(&s.states, key{f.source.Devices[col.Device].ID, stateLastXID, ""}, always, func() *float64 { v := math.NaN(); return &v })
	if ok {
		f.last = append(f.last, lastTap{last, col.Device, cell})
	}
}

// lastTap is the cell with the last XID of a device, and what was in it; NaN: nothing yet.
type lastTap struct {
	*float64
	device, cell int
}

// next reports whether a cell has an XID that came after the first row.
func (t *lastTap) next(cell float64) bool {
	before := *t.float64
	if !(cell > 0) { // none yet, at least in this session
		if math.IsNaN(before) {
			*t.float64 = 0
		}
		return false
	}
	*t.float64 = cell
	return cell != before && !math.IsNaN(before)
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

type histogramTap struct {
	*Histogram
	device, cell int
	block        cells   // with buffered samples, in place of cell
	silence      float64 // ms in which there was none
	scale        field.Scale
	field        *field.Field
	labels       []collector.Label
}

// mostSilence is how long a driver has no new sample, in ms, until readings stand in.
const mostSilence = 5000

// silent reports whether there has been no buffered sample for long: the driver has
// stopped to make them, or refuses them.
func (t *histogramTap) silent(row *ring.Row, millis float64) bool {
	if row.Cells[t.block.from+1] > 0 {
		t.silence = 0
		return false
	}
	t.silence += millis
	return t.silence > mostSilence
}

// maxMillis bounds what one sample stands for.
const maxMillis = float64(time.Hour / time.Millisecond)

// take counts a value. The session has dropped what is not plausible, but the memory can
// be shared with a process gone mad, and a sum never forgets.
func (t *histogramTap) take(v, millis float64) {
	if v >= t.field.Desc.Min && v <= t.field.Desc.Max && millis <= maxMillis {
		t.observe(t.scale.Of(v), millis)
	}
}

type xidTap struct {
	*xids
	device int
	cells  []int
	until  int // the cell of field.XIDsUntil; -1: there is none
	fields []*field.Field
}

func (t *xidTap) add(cell int, id field.ID) {
	if id == field.XIDsUntil {
		t.until = cell
	} else {
		t.cells = append(t.cells, cell)
	}
}

// new reports whether the events of a row count: those of a row that is not new do if they
// happened in the last gap.
func (t *xidTap) new(d *deviceTap, row *ring.Row) bool {
	if d.news || t.until < 0 {
		return d.news
	}
	until := row.Cells[t.until]
	return until > d.gap.from && until <= d.gap.to
}

// sinceTap is the cell of field.XIDsSince of a device.
type sinceTap struct {
	device, cell int
	last         float64
}

// miss notes a gap if the source's XIDs begin after the last row that was read.
func (f *follow) miss(t *sinceTap, row *ring.Row) {
	since := row.Cells[t.cell]
	if since == t.last || math.IsNaN(since) {
		return
	}
	t.last = since
	p := f.devices[t.device].progress
	if last := float64(p.time / int64(time.Microsecond)); last > 0 && since > last {
		p.gap = gap{last, since}
		f.gaps.Inc()
	}
}

type clockTap struct {
	*clocks
	device, cell int
	fields       []*field.Field
	labels       []collector.Label
}

// next takes the times of a row and decides what of it counts. A device whose
// stamp did not advance was not sampled: its cells are old. Its events are new
// all the same, for the XID of a lost device comes with the failure.
func (f *follow) next(row *ring.Row) {
	for i := range f.since {
		f.miss(&f.since[i], row)
	}
	for i := range f.devices {
		d := &f.devices[i]
		if d.progress == nil {
			continue
		}
		stamp, overlap := row.Stamps[i], row.N < f.before
		d.sampled = stamp > 0 && stamp != d.last && !(overlap && counted(d.progress.stamp, stamp))
		d.news = !(overlap && counted(d.progress.time, row.Time))
		d.last = stamp
		if d.sampled {
			d.millis = f.millis(d.progress.stamp, stamp)
			d.progress.stamp = stamp
		}
		if d.news {
			d.progress.time = row.Time
		}
	}
}

// maxFill is the longest time between two samples for which the second one stands, or
// three intervals if that is more.
const maxFill = time.Second

// millis is for how long the values of a row stand that was sampled after the one
// before: all the time since then, so that what was not sampled because ticks were
// missed counts as what came next. What was in a longer gap is not known, so that the
// values stand for an interval, as the first ones do.
func (f *follow) millis(before, sampled int64) float64 {
	interval := int64(f.source.Interval)
	since := sampled - before
	if since <= 0 || since > max(int64(maxFill), 3*interval) {
		since = interval
	}
	return float64(since) / float64(time.Millisecond)
}

// counted reports whether a row of time t was counted, if all up to until were.
func counted(until, t int64) bool { return t > 0 && t <= until && until-t <= maxOverlap }

// take counts a row, and reports what happened in it to event, which may be nil. It
// reports whether there are new series.
func (f *follow) take(row *ring.Row, a *axis, event func(Event)) (grew bool) {
	f.next(row)
	for i := range f.histograms {
		t := &f.histograms[i]
		d := &f.devices[t.device]
		if d.sampled && t.Created == 0 {
			t.Created = row.Time - int64(d.millis*float64(time.Millisecond))
		}
		switch {
		case !d.sampled:
		case t.block.to == 0 || t.silent(row, d.millis):
			t.take(row.Cells[t.cell], d.millis)
		default:
			for at := t.block.from; at+1 < t.block.to && row.Cells[at+1] > 0; at += 2 {
				t.take(row.Cells[at], row.Cells[at+1])
			}
		}
	}
	for i := range f.clocks {
		t := &f.clocks[i]
		if cell := row.Cells[t.cell]; f.devices[t.device].sampled && isMask(cell) {
			if mask := uint64(cell); !t.known || mask&allClockReasons != t.active {
				if !t.known {
					t.created = row.Time
				}
				began := t.observe(mask, a.position(row.Time), a.now)
				for ; began != 0 && event != nil; began &= began - 1 {
					reason, _ := field.ClockReason(bits.TrailingZeros64(began))
					event(Event{Collector: f.source.Collector, Device: &f.source.Devices[t.device], Time: time.Unix(0, row.Time), Clock: reason})
				}
			}
		}
	}
	for i := range f.xids {
		t := &f.xids[i]
		if !t.new(&f.devices[t.device], row) {
			continue
		}
		if t.created == 0 {
			t.created = row.Time - int64(f.source.Interval) // what is in the first row has happened since then
		}
		for _, c := range t.cells {
			if cell := row.Cells[c]; !math.IsNaN(cell) {
				grew = t.count(cell, a.position(row.Time), a.now) || grew
				f.report(event, t.device, row, cell)
			}
		}
	}
	for i := range f.last {
		if t := &f.last[i]; t.next(row.Cells[t.cell]) {
			f.report(event, t.device, row, row.Cells[t.cell])
		}
	}
	return grew
}

// report reports an XID.
func (f *follow) report(event func(Event), device int, row *ring.Row, cell float64) {
	if event != nil && cell != 0 {
		event(Event{Collector: f.source.Collector, Device: &f.source.Devices[device], Time: time.Unix(0, row.Time), XID: int(codeOf(cell))})
	}
}

func (f *follow) refresh(now int64) {
	for i := range f.xids {
		f.xids[i].refresh(now)
	}
	for i := range f.clocks {
		f.clocks[i].refresh(now)
	}
}
