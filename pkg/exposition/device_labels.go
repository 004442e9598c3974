package exposition

import (
	"slices"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// deviceLabels makes the label sets of one device after the other.
type deviceLabels struct {
	b      *builder
	device *collector.Device
	fixed  []collector.Label
	owners []Owner
	nobody [1]Owner           // of what has no owners or is not told per owner
	bare   [kinds][]*labelSet // of columns without labels of their own
}

// Kinds of columns, whose labels differ though they have none of their own: bits.
const (
	withXID = 1 << iota
	single  // without owners

	kinds = 1 << iota
)

func (b *builder) newDeviceLabels() *deviceLabels { return &deviceLabels{b: b} }

// of returns the label sets of a column: one per owner, one if there is none or
// if owners have values of their own.
func (l *deviceLabels) of(d *collector.Device, f field.ID, column []collector.Label, xid bool) []*labelSet {
	l.turn(d)
	kind, owners := 0, l.owners
	if xid {
		kind |= withXID
	}
	if len(owners) == 0 || l.b.o.split(d, f) {
		kind |= single
		owners = l.nobody[:]
	}
	if len(column) > 0 {
		return l.make(owners, column, xid)
	}
	if l.bare[kind] == nil {
		l.bare[kind] = l.make(owners, nil, xid)
	}
	return l.bare[kind]
}

// turn begins the labels of a device.
func (l *deviceLabels) turn(d *collector.Device) {
	if l.device == d {
		return
	}
	l.device, l.fixed, l.owners = d, l.b.o.fixedLabels(l.fixed[:0], d), l.b.o.owners(d)
	l.bare = [kinds][]*labelSet{}
}

func (l *deviceLabels) make(owners []Owner, column []collector.Label, xid bool) []*labelSet {
	sets := make([]*labelSet, 0, len(owners))
	for i := range owners {
		set := l.one(&owners[i], column, xid)
		if !slices.Contains(sets, set) { // owners that cannot be told apart are one
			sets = append(sets, set)
		}
	}
	return sets
}

// one is the label set of a series of one owner.
func (l *deviceLabels) one(o *Owner, column []collector.Label, xid bool) *labelSet {
	labels := labelsOf{fixed: l.fixed, facts: l.device.Facts, column: column, pod: o.PodLabels, owner: o.Labels, xid: xid}
	set := l.b.intern(labels.set())
	l.b.layout.stats.labels += labels.dropped
	return set
}
