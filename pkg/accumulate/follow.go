package accumulate

import (
	"math"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/view"
)

// maxOverlap bounds how long two rings of the same device can hold the same
// instants. A time further back than this is a clock that was set back.
const maxOverlap = int64(10 * time.Minute)

// follow reads one ring of the current View and feeds what it says to the states.
type follow struct {
	id      uint64 // tells rings apart; never used twice
	source  *view.Source
	rows    *ring.Follower
	devices []deviceTap // as Source.Devices

	histograms []histogramTap
	xids       []xidTap
	clocks     []clockTap
}

// deviceTap says for a device of a follow which rows are new.
type deviceTap struct {
	progress *progress // nil if another source supplies the device
	resume   progress  // where an earlier ring ended; cleared when that is passed
	stamp    int64     // of the last row read
	sampled  bool      // the device was sampled in the row in hand
	told     bool      // events in the row in hand are new
}

// progress is how far the rows of a device have been counted, through all rings
// that it had. A ring that takes over may hold rows from before.
type progress struct {
	stamp int64 // the device's, of the last row counted
	time  int64 // of the last row read
}

type histogramTap struct {
	*Histogram
	device, cell int
	scale        field.Scale
	field        *field.Field
	labels       []collector.Label
}

type xidTap struct {
	*xids
	device int
	cells  []int
	fields []*field.Field
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
	for i := range f.devices {
		d := &f.devices[i]
		if d.progress == nil {
			continue
		}
		stamp := row.Stamps[i]
		d.sampled = stamp > 0 && stamp != d.stamp && !counted(&d.resume.stamp, stamp)
		d.told = !counted(&d.resume.time, row.Time)
		d.stamp = stamp
		if d.sampled {
			d.progress.stamp = stamp
		}
		if d.told {
			d.progress.time = row.Time
		}
	}
}

// counted reports whether an earlier ring, which ended at until, has told of time
// t. Rows come in order, so the first new one ends the overlap: until is cleared,
// and a clock that is set back later makes no difference.
func counted(until *int64, t int64) bool {
	if *until == 0 || t <= 0 {
		return false
	}
	if t <= *until && *until-t <= maxOverlap {
		return true
	}
	*until = 0
	return false
}

// take counts a row. It reports whether there are new series.
func (f *follow) take(row *ring.Row, a *axis) (grew bool) {
	f.next(row)
	for i := range f.histograms {
		t := &f.histograms[i]
		// The sampler has dropped what is not plausible, but the memory can be
		// shared with a process gone mad, and a sum never forgets.
		if cell := row.Cells[t.cell]; f.devices[t.device].sampled && cell >= t.field.Desc.Min && cell <= t.field.Desc.Max {
			t.observe(t.scale.Of(cell))
		}
	}
	for i := range f.clocks {
		t := &f.clocks[i]
		if cell := row.Cells[t.cell]; f.devices[t.device].sampled && isMask(cell) {
			if mask := uint64(cell); !t.known || mask&allClockReasons != t.active {
				t.observe(mask, a.position(row.Time), a.now)
			}
		}
	}
	for i := range f.xids {
		t := &f.xids[i]
		if !f.devices[t.device].told {
			continue
		}
		for _, c := range t.cells {
			if cell := row.Cells[c]; !math.IsNaN(cell) {
				grew = t.count(cell, a.position(row.Time), a.now, f.id) || grew
			}
		}
	}
	return grew
}

func (f *follow) refresh(now int64) {
	for i := range f.xids {
		f.xids[i].refresh(now)
	}
	for i := range f.clocks {
		f.clocks[i].refresh(now)
	}
}
