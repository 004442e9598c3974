package isolation

import (
	"time"

	"warpgauge/pkg/ring"
)

// freshDevices are those with rows on the page that are not stale.
func (s *Supervisor) freshDevices(now time.Time) map[string]bool {
	fresh := make(map[string]bool)
	var row ring.Row
	for _, b := range s.shown {
		if !b.ring.Latest(&row) {
			continue
		}
		for i, stamp := range row.Stamps {
			if age := now.Sub(time.Unix(0, stamp)); stamp != 0 && age < s.o.FreshFor {
				fresh[b.devices[i].ID] = true
			}
		}
	}
	return fresh
}

// enoughRows is after how many rows a device that none of them has is not
// waited for any longer.
const enoughRows = 3

// hasRows reports whether each device in fresh that is among sources has been
// sampled.
func hasRows(sources []*boundSource, fresh map[string]bool) bool {
	var row ring.Row
	for _, b := range sources {
		if b.ring.Head() >= enoughRows {
			continue
		}
		found := b.ring.Latest(&row)
		for i := range b.devices {
			if fresh[b.devices[i].ID] && (!found || row.Stamps[i] == 0) {
				return false
			}
		}
	}
	return true
}
