package rows

import (
	"slices"
	"time"

	"warpgauge/pkg/view"
)

const (
	// maxFill is the longest time between two samples that the second one fills. Three intervals apply if that is longer.
	maxFill = time.Second
	// maxOverlap bounds the time that the rings of two sources can both hold. A row further back means that
	// the clock was set back.
	maxOverlap = 10 * time.Minute

	// The Cursor remembers devices for a day after they leave the View, so that a device that comes back continues: health
	// counts corrected memory errors by the day. A Bind forgets.
	retainFor = 24 * time.Hour
	retainMax = 4096 // devices; above it, the Cursor forgets some of them
)

// Row is one row of one source and marks its new parts. It is valid until the Follower returns, or until the
// Cursor's next call.
type Row struct {
	view.Row
	Source int       // index of the source in the View's bound sources
	Read   time.Time // when the row was read

	// Overlap reports that the row is older than the binding of its ring: another ring may have held the same instant.
	Overlap bool
	Devices []Device // as the source's Devices
	XIDs    []XID    // XIDs that no earlier row had
	Masks   []Mask   // clock event masks that changed, or the first masks of a binding
	Gaps    []int    // devices that miss XIDs between the last row and this one
}

// Device describes the part of a row about one device.
type Device struct {
	Supplied bool    // the source supplies the device; if not, the other fields are zero
	Sampled  bool    // the device was sampled in this row, and no other row had the sample
	New      bool    // no other row had the events of this row
	Millis   float64 // how long the values of the last sampled row apply
}

// Source is a source of the Cursor's View.
type Source struct {
	*view.Source
	// Supplies reports by device whether this source supplies it. If several sources of a View have a device,
	// the first one supplies it.
	Supplies []bool
}

// Cursor reads each row of a View's rings once. It decides which rows are new: a new session or another collector may
// repeat instants of the source before. It belongs to one goroutine. The zero Cursor is ready for use.
type Cursor struct {
	view       uint64 // number of the View
	bound      []*bound
	sources    []Source
	progress   map[string]*progress // by device
	at, read   int                  // the ring that Next reads, and how many of its rows it has read
	gone       uint64               // overruns of former rings
	forgetters []Forgetter          // hear when progress loses a device
}

// progress is the position up to which a device's rows have been read, across its rings.
type progress struct {
	view  uint64    // the last View with the device
	left  time.Time // when it left the Views
	stamp int64     // the device's stamp in the last sampled row
	time  int64     // time of the last new row
	heard int64     // time of the last new row with a sample or an XID
	gap   gap       // the newest time in its XIDs
	masks []*mask
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
	// before is the number of the first row that came after the binding. A source that takes over, such as DCGM when it answers
	// again, may have sampled all the time: the Cursor skips its earlier rows unless they are newer than the rows already read.
	before   uint64
	devices  []Device
	progress []*progress // nil: another source supplies the device
	stamps   []int64     // of the last row
	millis   float64     // of an interval
	longest  int64       // maximum time between two samples that is filled, ns
	events   detector
}

// Bind replaces the View. The Cursor continues in rings that stay. The caller reads the rows of the former View first.
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
		for i, p := range b.progress {
			supplies[i] = p != nil
		}
		c.bound, c.sources = append(c.bound, b), append(c.sources, Source{s, supplies})
	}
	for _, b := range old {
		c.gone += b.rows.Overruns()
	}
	c.retire(now)
	c.at, c.read = 0, 0
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
			p = &progress{}
			c.progress[s.Devices[i].ID] = p
		}
		if p.view != c.view { // else an earlier source supplies the device
			p.view = c.view
			b.progress[i], b.devices[i].Supplied = p, true
		}
	}
	b.events = newDetector(b, c.view)
	return b
}

// retire records when devices leave the View. It forgets those that left more than retainFor ago, and others, in no
// order, until retainMax are left, and tells the Forgetters.
func (c *Cursor) retire(now time.Time) {
	unused := 0
	for id, p := range c.progress {
		if p.view >= c.view-1 {
			p.left = now
		}
		if p.view == c.view {
			continue
		}
		if unused++; unused > retainMax || now.Sub(p.left) > retainFor {
			delete(c.progress, id)
			unused--
			for _, f := range c.forgetters {
				f.Forget(id)
			}
		}
	}
}

// Skip skips the rows that are now in the rings.
func (c *Cursor) Skip() {
	for _, b := range c.bound {
		b.rows.Skip()
	}
}

// Next reads the next row. It returns false if there is none; the next call begins again with the first ring.
func (c *Cursor) Next(row *Row) bool {
	for ; c.at < len(c.bound); c.at, c.read = c.at+1, 0 {
		b := c.bound[c.at]
		if c.read < 2*b.Ring.Rows() && b.rows.Next(&row.Row) { // a fast writer must not keep the reader here
			c.read++
			row.Source = c.at
			b.decide(row)
			return true
		}
	}
	c.at = 0
	return false
}

// Overruns returns how many rows the writers overwrote before they were read.
func (c *Cursor) Overruns() uint64 {
	out := c.gone
	for _, b := range c.bound {
		out += b.rows.Overruns()
	}
	return out
}

// decide marks the new parts of a row. A device whose stamp did not advance was not sampled: its cells are
// old. Its events are still new, because the XID of a lost device comes with the failure.
func (b *bound) decide(row *Row) {
	row.Overlap = row.N < b.before
	row.Devices, row.XIDs, row.Masks, row.Gaps = b.devices, row.XIDs[:0], row.Masks[:0], row.Gaps[:0]
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
			if d.Sampled {
				p.heard = row.Time
			}
		}
	}
	if b.events.any {
		b.findEvents(row)
	}
}

// applies returns how long, in ms, values apply that were sampled the given time after the last ones: all that time, so that
// the next values also count for missed ticks. Values after a longer gap apply for one interval, as the first values do.
func (b *bound) applies(since int64) float64 {
	if since <= 0 || since > b.longest {
		return b.millis
	}
	return float64(since) / float64(time.Millisecond)
}

// counted reports whether time t was read, if everything up to until was.
func counted(until, t int64) bool { return t > 0 && t <= until && until-t <= int64(maxOverlap) }
