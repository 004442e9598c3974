package exposition

import (
	"maps"
	"slices"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/view"
)

// Dialect shows devices under the names of another exporter. It is the Names of a list's field.Dialect.
type Dialect interface {
	// Series returns the series of all sources of v whose list has this Dialect. A Renderer calls it when it lays out
	// a page. owners returns the users of a device.
	Series(v *view.View, hostname string, owners func(*collector.Device) []view.Owner) []Series
}

// Series is a series under a name of a Dialect. It is left out if a field of a list has that name.
type Series struct {
	Field  *field.Field      // name, type, help and scale
	Labels []collector.Label // all labels
	Source int               // index into the sources of the View
	Device int               // index into the devices of the source
	Column int               // index of the source's column with the value, unless Value is set
	Value  func() float64    // returns the value for the next page without blocking; NaN: no series
	Always bool              // stays on the page while the device is stale
}

// computed is a value that a Dialect computes for each page.
type computed struct {
	of    func() float64
	value float64
}

func (b *builder) addDialects() {
	own := maps.Clone(b.families)
	var done []Dialect
	for _, s := range b.layout.view.Sources {
		if s.Fields.Dialect == nil {
			continue
		}
		d, ok := s.Fields.Dialect.Names.(Dialect)
		if !ok || slices.Contains(done, d) {
			continue
		}
		done = append(done, d)
		for _, series := range d.Series(b.layout.view, b.o.Hostname, b.o.owners) {
			if own[series.Field.Name] != nil {
				b.layout.stats.misfits++
				continue
			}
			b.addNamed(&series)
		}
	}
}

func (b *builder) addNamed(s *Series) {
	if b.layout.view.Sources[s.Source].Devices[s.Device].Unshown {
		return
	}
	labels := labelsOf{fixed: s.Labels}
	set := b.intern(labels.set())
	b.layout.stats.labels += labels.dropped
	at, device := b.snap.roster.at(s.Source, s.Column, s.Device)
	if s.Always {
		device = b.snap.roster.event(device)
	}
	if s.Value == nil {
		b.addCell(s.Field, []*labelSet{set}, false, &b.snap.cells[at], device)
		return
	}
	c := &computed{of: s.Value, value: s.Value()}
	b.layout.computed = append(b.layout.computed, c)
	b.addCell(s.Field, []*labelSet{set}, false, &c.value, device)
}

// InPlace reports whether a device has only the names of the list's dialect, or no series.
func InPlace(list *field.List, d *collector.Device) bool {
	return d.Unshown || list.Dialect != nil && list.Dialect.InPlace && len(d.Texts) > 0
}
