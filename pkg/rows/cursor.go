package rows

import (
	"slices"
	"time"

	"warpgauge/pkg/events"
	"warpgauge/pkg/view"
)

const (
	// maxFill is the longest time between two samples that the second one fills, or three
	// intervals if that is more.
	maxFill = time.Second
	// maxOverlap bounds how long the rings of two sources can hold the same instants. A time
	// further back comes from a clock that was set back.
	maxOverlap = 10 * time.Minute

	// Devices that no View has are remembered for a while, so that a device that comes back
	// continues where it was.
	retainFor = time.Hour
	retainMax = 4096 // of more, any are forgotten
)

// Row is one row of one source, and which parts of it are new. It is valid until
// the Follower returns, or until the Cursor's next call.
type Row struct {
	view.Row
	Source int       // index of the source in the View's bound sources
	Read   time.Time // when the row was read

	// Overlap reports that the row is older than the binding of its ring: another ring may
	// have held the same instant.
	Overlap bool
	Devices []Device // as the source's Devices
	XIDs    []XID    // XIDs of the row that no row before had
	Masks   []Mask   // clock event masks that changed, or that are the first of a binding
	Gaps    int      // devices whose XIDs are missing between the last row and this one

	reader *Reader // nil: of a Cursor
}

// Report reports an event that a Follower has found in the row. The Reader publishes it when
// its Followers have returned.
func (r *Row) Report(e events.Event) {
	if r.reader != nil {
		r.reader.add(e)
	}
}

// Device tells how a row concerns one device.
type Device struct {
	Supplied bool    // the source supplies the device; if not, the other fields are zero
	Sampled  bool    // the device was sampled in this row, and no other row had the sample
	New      bool    // no other row had the events of this row
	Millis   float64 // how long the values of the last sampled row apply
}

// Source is a source of the View that a Cursor is bound to.
type Source struct {
	*view.Source
	// Supplies says by device whether this source supplies it. Of several sources in a View
	// that have a device, the first one does.
	Supplies []bool
}

// Cursor reads the rows of a View's rings, each row once. It decides which rows are new:
// sources that follow each other, in another session or of another collector, may hold the
// same instants. It belongs to one goroutine. The zero Cursor is ready for use.
type Cursor struct {
	view     uint64 // number of the View
	bound    []*bound
	sources  []Source
	progress map[string]*progress // by device
	at, left int                  // the ring that Next reads, and how many rows at most
	gone     uint64               // overruns of rings that left
}

// progress is how far the rows of a device have been read, through all its rings.
type progress struct {
	view  uint64    // the last View with the device
	left  time.Time // when it left the Views
	stamp int64     // the device's, in the last sampled row
	time  int64     // of the last new row
	gap   gap       // the last one in its XIDs
	masks []*mask
	last  float64 // the last XID of a source that reports no more than that; NaN: no row yet
}

// follower reads the rows of a ring; ring.Follower does.
type follower interface {
	Next(row *view.Row) bool
	Skip()
	Overruns() uint64
}

// bound is a ring of the View.
type bound struct {
	*view.Source
	rows follower
	// before is the number of the first row that came after the ring was bound. A source
	// that takes over from another one, such as DCGM when it answers again, may have
	// sampled all the while: of the rows before, those that are not newer than what was
	// read are skipped.
	before   uint64
	devices  []Device
	progress []*progress // nil: another source supplies the device
	stamps   []int64     // of the last row
	millis   float64     // of an interval
	longest  int64       // time between two samples that is filled, ns
	events   detector
}

// Bind replaces the View. A ring that stays is read on from where it was. The caller reads
// the rows of the former View first.
func (c *Cursor) Bind(v *view.View, now time.Time) []Source {
	if c.progress == nil {
		c.progress = make(map[string]*progress)
	}
	old := slices.Clone(c.bound)
	c.view++
	c.bound, c.sources = make([]*bound, 0, len(v.Sources)), make([]Source, 0, len(v.Sources))
	for _, s := range v.Sources {
		if !s.WellFormed() {
			continue
		}
		var earlier *bound
		if i := slices.IndexFunc(old, func(b *bound) bool { return b.Ring == s.Ring }); i >= 0 {
			earlier = old[i]
			old = slices.Delete(old, i, i+1)
		}
		b := c.newBound(s, earlier)
		supplies := make([]bool, len(s.Devices))
		for i := range supplies {
			supplies[i] = b.progress[i] != nil
		}
		c.bound, c.sources = append(c.bound, b), append(c.sources, Source{s, supplies})
	}
	for _, b := range old {
		c.gone += b.rows.Overruns()
	}
	c.forget(now)
	c.rewind()
	return c.sources
}

// newBound binds s. earlier is the binding of the same ring in the last View, or nil.
func (c *Cursor) newBound(s *view.Source, earlier *bound) *bound {
	n := len(s.Devices)
	b := &bound{
		Source: s, devices: make([]Device, n), progress: make([]*progress, n), stamps: make([]int64, n),
		millis: float64(s.Interval) / float64(time.Millisecond), longest: max(int64(maxFill), 3*int64(s.Interval)),
	}
	if earlier != nil {
		b.rows, b.before = earlier.rows, earlier.before
		copy(b.stamps, earlier.stamps)
	} else {
		b.rows, b.before = s.Ring.Follow(), s.Ring.Head()
	}
	for i := range s.Devices {
		p := c.progress[s.Devices[i].ID]
		if p == nil {
			p = newProgress()
			c.progress[s.Devices[i].ID] = p
		}
		if p.view != c.view { // else a source before this one supplies the device
			p.view = c.view
			b.progress[i], b.devices[i].Supplied = p, true
		}
	}
	b.events = newDetector(b, c.view)
	return b
}

// forget forgets devices that were on no View for long, or that are too many.
func (c *Cursor) forget(now time.Time) {
	unused := 0
	for _, p := range c.progress {
		if p.view != c.view {
			unused++
		}
		if p.view == c.view-1 {
			p.left = now
		}
	}
	for id, p := range c.progress {
		if p.view != c.view && (now.Sub(p.left) > retainFor || unused > retainMax) {
			delete(c.progress, id)
			unused--
		}
	}
}

// Skip leaves out the rows that are in the rings now.
func (c *Cursor) Skip() {
	for _, b := range c.bound {
		b.rows.Skip()
	}
}

// Next reads the next row. It reports false if there is none; the call after that begins
// again with the first ring.
func (c *Cursor) Next(row *Row) bool {
	for c.at < len(c.bound) {
		b := c.bound[c.at]
		if c.left > 0 && b.rows.Next(&row.Row) {
			c.left-- // a writer that is faster than its reader cannot keep the reader here
			row.Source = c.at
			b.decide(row)
			return true
		}
		c.at++
		c.limit()
	}
	c.rewind()
	return false
}

func (c *Cursor) rewind() {
	c.at = 0
	c.limit()
}

func (c *Cursor) limit() {
	if c.at < len(c.bound) {
		c.left = 2 * c.bound[c.at].Ring.Rows()
	}
}

// Overruns returns how many rows the writers overwrote before they were read.
func (c *Cursor) Overruns() uint64 {
	out := c.gone
	for _, b := range c.bound {
		out += b.rows.Overruns()
	}
	return out
}

// decide decides which parts of a row are new. A device whose stamp did not advance was not
// sampled: its cells are old. Its events are new all the same, for the XID of a lost device
// comes with the failure.
func (b *bound) decide(row *Row) {
	row.Overlap = row.N < b.before
	row.Devices, row.XIDs, row.Masks, row.Gaps = b.devices, row.XIDs[:0], row.Masks[:0], 0
	if len(b.events.since) > 0 {
		b.findGaps(row)
	}
	for i, p := range b.progress {
		stamp, last := row.Stamps[i], b.stamps[i]
		b.stamps[i] = stamp
		if p == nil {
			continue
		}
		d := &b.devices[i]
		d.Sampled = stamp > 0 && stamp != last && !(row.Overlap && counted(p.stamp, stamp))
		d.New = !(row.Overlap && counted(p.time, row.Time))
		if d.Sampled {
			d.Millis = b.applies(stamp - p.stamp)
			p.stamp = stamp
		}
		if d.New {
			p.time = row.Time
		}
	}
	if b.events.any {
		b.findEvents(row)
	}
}

// applies returns how long, in ms, values apply that were sampled so long after the last
// ones: all that time, so that what was not sampled because ticks were missed counts as what
// came next. What was in a longer gap is not known, so that the values apply for an
// interval, as the first ones do.
func (b *bound) applies(since int64) float64 {
	if since <= 0 || since > b.longest {
		return b.millis
	}
	return float64(since) / float64(time.Millisecond)
}

// counted reports whether time t was read, if all up to until was.
func counted(until, t int64) bool { return t > 0 && t <= until && until-t <= int64(maxOverlap) }
