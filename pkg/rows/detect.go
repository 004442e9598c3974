package rows

import (
	"fmt"
	"math"
	"slices"
	"time"

	"warpgauge/pkg/field"
)

// XID is an XID of a row.
type XID struct {
	Device int     // index into the source's Devices
	Code   float64 // the value of the cell; it may make no sense
}

// Mask is a mask of clock event reasons.
type Mask struct {
	Device, Cell int
	Value        uint64
	Began        uint64 // reasons that began with this row
}

const allClockReasons = 1<<field.ClockReasons - 1

// detector holds the cells of a source with events.
type detector struct {
	any   bool
	xids  []xidCells
	since []sinceCell
	masks []maskCell
}

// xidCells holds the cells with the XIDs of a device. There may be several, so that one tick can report several events.
type xidCells struct {
	device int
	cells  []int
	until  int // the cell of field.XIDsUntil; -1: none
}

// sinceCell is a device's cell with field.XIDsSince.
type sinceCell struct {
	device, cell int
	last         float64
}

// maskCell is a cell with a mask of clock event reasons.
type maskCell struct {
	*mask
	device, cell int
	told         bool // followers of this binding have received the mask
}

// mask is the last mask of a device, across its rings. A blank neither begins nor ends an event.
type mask struct {
	labels string
	view   uint64 // that claimed it
	known  bool
	active uint64
}

// gap is a period without XIDs of a device, Unix µs. A source with a history may still have them.
type gap struct{ from, to float64 }

func newDetector(b *bound, view uint64) (out detector) {
	for i := range b.Columns {
		c := &b.Columns[i]
		p := b.progress[c.Device]
		if p == nil || c.Buffer > 0 {
			continue
		}
		switch c.Field {
		case field.XIDEvent:
			x := out.xidsOf(c.Device)
			x.cells = append(x.cells, i)
		case field.XIDsUntil:
			out.xidsOf(c.Device).until = i
		case field.XIDsSince:
			out.since = append(out.since, sinceCell{c.Device, i, math.NaN()})
		case field.ClockEventReasons:
			if m := p.claimMask(fmt.Sprint(c.Labels), view); m != nil {
				out.masks = append(out.masks, maskCell{mask: m, device: c.Device, cell: i})
			}
		}
	}
	out.any = len(out.xids)+len(out.masks) > 0
	return out
}

func (e *detector) xidsOf(device int) *xidCells {
	for i := range e.xids {
		if e.xids[i].device == device {
			return &e.xids[i]
		}
	}
	e.xids = append(e.xids, xidCells{device: device, until: -1})
	return &e.xids[len(e.xids)-1]
}

// claimMask returns the mask of a column with labels, or nil if another column of the View has claimed it.
func (p *progress) claimMask(labels string, view uint64) *mask {
	i := slices.IndexFunc(p.masks, func(m *mask) bool { return m.labels == labels })
	if i < 0 {
		i = len(p.masks)
		p.masks = append(p.masks, &mask{labels: labels})
	}
	m := p.masks[i]
	if m.view == view {
		return nil
	}
	m.view = view
	return m
}

// findGaps finds devices whose XIDs begin after the last row that was read.
func (b *bound) findGaps(row *Row) {
	for i := range b.events.since {
		t := &b.events.since[i]
		since := row.Cells[t.cell]
		if since == t.last || math.IsNaN(since) {
			continue
		}
		t.last = since
		p := b.progress[t.device]
		if last := float64(p.heard / int64(time.Microsecond)); last > 0 && since > last {
			p.gap = gap{last, since}
			row.Gaps = append(row.Gaps, t.device)
		}
	}
}

// findEvents finds the XIDs and the clock events of a row.
func (b *bound) findEvents(row *Row) {
	for i := range b.events.xids {
		x := &b.events.xids[i]
		until, missed := row.Time+int64(b.Interval), true // another source may have the XID in its next row
		if !b.devices[x.device].New {
			until, missed = b.missed(x, row)
		}
		if !missed {
			continue
		}
		for _, at := range x.cells {
			if code := row.Cells[at]; code != 0 && !math.IsNaN(code) { // no XID has the code 0
				row.XIDs = append(row.XIDs, XID{Device: x.device, Code: code})
				p := b.progress[x.device]
				p.heard = max(p.heard, until)
				if at := float64(until / int64(time.Microsecond)); at <= p.gap.to {
					p.gap.from = max(p.gap.from, at)
				}
			}
		}
	}
	for i := range b.events.masks {
		m := &b.events.masks[i]
		if v := row.Cells[m.cell]; b.devices[m.device].Sampled && v >= 0 && v < 1<<53 { // a float64 has only these bits
			m.find(row, uint64(v)&allClockReasons)
		}
	}
}

// missed returns up to when an old row reports XIDs, and whether the source before could not report them: they happened in
// the last gap, or after the last row with samples or XIDs, such as while an engine hangs.
func (b *bound) missed(x *xidCells, row *Row) (until int64, missed bool) {
	p, at := b.progress[x.device], float64(row.Time/int64(time.Microsecond))
	if x.until >= 0 {
		at = row.Cells[x.until]
	}
	until = int64(at) * int64(time.Microsecond)
	return until, x.until >= 0 && at > p.gap.from && at <= p.gap.to || until > p.heard
}

func (m *maskCell) find(row *Row, value uint64) {
	if m.told && value == m.active {
		return
	}
	var began uint64
	if m.known {
		began = value &^ m.active
	}
	m.told, m.known, m.active = true, true, value
	row.Masks = append(row.Masks, Mask{m.device, m.cell, value, began})
}
