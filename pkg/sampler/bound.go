package sampler

import (
	"fmt"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
)

// bound is a source with what it says of itself, asked for once, and its ring.
type bound struct {
	source   collector.Source
	devices  []collector.Device
	columns  []collector.Column
	schedule *schedule
	ring     *ring.Ring
}

func bind(src collector.Source, fields field.List, o Options) (bound, error) {
	b := bound{source: src, devices: src.Devices(), columns: src.Columns()}
	b.schedule = newSchedule(b.columns, fields, o)
	rows := ringRows(o.RingSpan, b.schedule.tick)
	var err error
	if b.ring, err = o.NewRing(src, rows); err != nil {
		return bound{}, fmt.Errorf("make ring of source %q: %w", sourceID(b.devices), err)
	}
	if b.ring.Stamps() != len(b.devices) || b.ring.Cells() != len(b.columns) {
		return bound{}, fmt.Errorf("make ring of source %q: it has %d stamps and %d cells for %d devices and %d columns",
			sourceID(b.devices), b.ring.Stamps(), b.ring.Cells(), len(b.devices), len(b.columns))
	}
	return b, nil
}

// ringRows keeps a ring within reason: 1,024 rows of 100 cells are 0.8 MiB.
func ringRows(span, tick time.Duration) int {
	return int(min(max(span/tick, 16), 1024))
}

// privateRing is Options.NewRing for a sampler whose readers are in its process.
func privateRing(src collector.Source, rows int) (*ring.Ring, error) {
	return ring.Make(rows, len(src.Devices()), len(src.Columns())), nil
}
