package exposition

import (
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/view"
)

// Owners returns the users of a device. The owner table (pods, jobs) implements it; its answers come from
// memory, so they never block.
type Owners interface {
	// Version changes whenever any answer of Owners or Split changes.
	Version() uint64
	// Owners returns the users of a device. Each user gets a copy of the device's series with these labels
	// added; without users there is one copy without them.
	Owners(d *collector.Device) []view.Owner
	// Split reports whether a reading of the device is split per user, by Shares:
	// then the device's own series stays single and without owners.
	Split(d *collector.Device, f field.ID) bool
	// Shares returns the newest values per user; nil if there are none.
	Shares() *view.Shares
}

func setOf(s *view.Shares) uint64 {
	if s == nil {
		return 0
	}
	return s.Set
}

func valuesOf(s *view.Shares) []float64 {
	if s == nil {
		return nil
	}
	return s.Values
}
