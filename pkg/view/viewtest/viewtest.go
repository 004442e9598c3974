// Package viewtest makes sources whose rows a test writes.
package viewtest

import (
	"math"
	"slices"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/view"
)

// Feed is a source with its next row, which is blank at first.
type Feed struct {
	*view.Source
	Stamps []int64 // by device, when it was last sampled
	Row    []float64
}

// New gives a source a ring with room for some rows.
func New(s *view.Source, rows int) *Feed {
	s.Ring = ring.Make(rows, len(s.Devices), len(s.Columns))
	return &Feed{s, make([]int64, len(s.Devices)), slices.Repeat([]float64{math.NaN()}, len(s.Columns))}
}

// Simple returns a feed of a collector "test" with zeros as its first row.
func Simple(fields field.List, devices []collector.Device, columns []collector.Column) *Feed {
	f := New(&view.Source{Collector: "test", Fields: fields, Devices: devices, Columns: columns}, 16)
	clear(f.Row)
	return f
}

// Tick appends the row. The devices in failed were not sampled.
func (f *Feed) Tick(t time.Time, failed ...int) {
	for i := range f.Stamps {
		if !slices.Contains(failed, i) {
			f.Stamps[i] = t.UnixNano()
		}
	}
	f.Ring.Append(t.UnixNano(), f.Stamps, f.Row)
}

// View returns a View of feeds.
func View(version uint64, all ...*Feed) *view.View {
	v := &view.View{Version: version}
	for _, f := range all {
		v.Sources = append(v.Sources, f.Source)
	}
	return v
}

// Board returns a Board that shows feeds.
func Board(version uint64, all ...*Feed) *view.Board {
	b := &view.Board{}
	b.Store(View(version, all...))
	return b
}
