package isolation

import (
	"fmt"

	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/shm"
	"warpgauge/pkg/view"
)

// boundSource is a source for which a child has memory.
type boundSource struct {
	source
	ring    *ring.Ring
	view    *view.Source // once it is in service
	payload int          // bytes of its message
}

// ledger holds what a child has bound, within bounds. It belongs to the
// goroutine that reads the channel.
type ledger struct {
	collector string
	lastID    uint64
	bound     map[uint64]*boundSource
	lists     map[uint64]field.List // by version; those that the child may refer to

	devices, columns, bytes, payload int // sums over bound
}

// bind makes memory for a source. A problem concerns this machine; an error is
// the child's fault.
func (l *ledger) bind(payload []byte) (b *boundSource, region *shm.Region, problem, err error) {
	b = &boundSource{payload: len(payload)}
	if err := unmarshal(payload, &b.source); err != nil {
		return nil, nil, nil, err
	}
	if b.id <= l.lastID {
		return nil, nil, nil, fmt.Errorf("%w: source %d after %d", errMessage, b.id, l.lastID)
	}
	l.lastID = b.id
	if len(l.bound) >= maxSources || l.devices+len(b.devices) > maxAllDevices || l.columns+len(b.columns) > maxAllColumns ||
		l.bytes+ringBytes(&b.source) > maxMemory || l.payload+b.payload > maxAllBytes {
		return nil, nil, nil, fmt.Errorf("%w: too many sources: %d with %d devices, %d columns and %d bytes of rows beside this one",
			errMessage, len(l.bound), l.devices, l.columns, l.bytes)
	}
	b.ring, region, problem = makeRing(&b.source)
	if problem == nil {
		l.add(b, 1)
		l.bound[b.id] = b
	}
	return b, region, problem, nil
}

func (l *ledger) add(b *boundSource, sign int) {
	l.devices += sign * len(b.devices)
	l.columns += sign * len(b.columns)
	l.bytes += sign * ringBytes(&b.source)
	l.payload += sign * b.payload
}

// drop forgets a source. Its memory goes when its last reader has let go of it.
func (l *ledger) drop(id uint64) {
	if b := l.bound[id]; b != nil {
		l.add(b, -1)
		delete(l.bound, id)
	}
}

// serve returns the sources that a service message names, in its order, and
// forgets those that they replace.
func (l *ledger) serve(m *service) ([]*boundSource, error) {
	out := make([]*boundSource, 0, len(m.sources))
	named := make(map[uint64]bool, len(m.sources))
	devices := make(map[string]bool)
	var highest uint64
	for _, s := range m.sources {
		b := l.bound[s.id]
		if b == nil || named[s.id] {
			return nil, fmt.Errorf("%w: source %d in service is not bound, or is there twice", errMessage, s.id)
		}
		named[s.id] = true
		highest = max(highest, s.id)
		for i := range b.devices {
			if id := b.devices[i].ID; devices[id] {
				return nil, fmt.Errorf("%w: device %q is there twice", errMessage, id)
			}
			devices[b.devices[i].ID] = true
		}
		if b.view == nil {
			list, ok := l.lists[s.version]
			if !ok {
				return nil, fmt.Errorf("%w: source %d is bound to list %d, which there is not", errMessage, s.id, s.version)
			}
			b.view = &view.Source{Collector: l.collector, Fields: list, Devices: b.devices, Columns: b.columns, Ring: b.ring}
		}
		out = append(out, b)
	}
	for id := range l.bound {
		if id < highest && !named[id] {
			l.drop(id)
		}
	}
	return out, nil
}
