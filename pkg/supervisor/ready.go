package supervisor

import (
	"fmt"
	"math"
	"slices"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/session"
	"warpgauge/pkg/view"
)

// patientRows is the number of rows after which readers stop waiting for a blank cell: some readings need two rows,
// the others will not come.
const patientRows = 3

// cell identifies a series in any session.
type cell struct {
	device string
	field  field.ID
	labels string
}

func cellOf(d *collector.Device, c *collector.Column) cell {
	if len(c.Labels) == 0 {
		return cell{d.ID, c.Field, ""}
	}
	return cell{d.ID, c.Field, fmt.Sprintf("%q", c.Labels)}
}

// complete reports whether next can replace shown without a gap: every device of next that is fresh in shown is fresh in
// its own row, and every cell of it that had a value has one again, or has had rows many rows to get one. A source without columns
// (a GPU that does not answer) needs no row.
func complete(shown, next []*view.Source, now time.Time, freshFor time.Duration, rows uint64) bool {
	fresh := make(map[string]bool)
	had := make(map[cell]bool)
	var row ring.Row
	for _, src := range shown {
		if !src.Latest(&row) {
			continue
		}
		limit := int64(max(freshFor, 2*src.Interval))
		for i, stamp := range row.Stamps {
			if stamp != 0 && now.UnixNano()-stamp <= limit {
				fresh[src.Devices[i].ID] = true
			}
		}
		for i := range src.Columns {
			c := &src.Columns[i]
			if d := &src.Devices[c.Device]; fresh[d.ID] && c.Buffer == 0 && !math.IsNaN(row.Cells[i]) {
				had[cellOf(d, c)] = true
			}
		}
	}
	for _, src := range next {
		if len(src.Columns) == 0 || !slices.ContainsFunc(src.Devices, func(d collector.Device) bool { return fresh[d.ID] }) {
			continue
		}
		if !src.Latest(&row) {
			return false
		}
		for i, stamp := range row.Stamps {
			if now.UnixNano()-stamp > int64(max(freshFor, 2*src.Interval)) && fresh[src.Devices[i].ID] {
				return false
			}
		}
		if src.Ring.Head() >= rows {
			continue
		}
		for i := range src.Columns {
			c := &src.Columns[i]
			if d := &src.Devices[c.Device]; math.IsNaN(row.Cells[i]) && had[cellOf(d, c)] && !session.Waits(c) {
				return false
			}
		}
	}
	return true
}
