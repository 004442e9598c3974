// Package view is what readers see of the sessions: which sources there are,
// what their columns mean, and the rings that hold their rows. A supervisor
// publishes a new View when a session ends or begins; exposition and
// accumulate read it. Everything reachable from a View is immutable except the
// rows in the rings, which are read lock-free.
package view

import (
	"sync/atomic"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
)

// Source is one bound source.
type Source struct {
	Collector string // name of the collector
	Fields    field.List
	Devices   []collector.Device
	Columns   []collector.Column
	// Ring holds a row per tick: len(Devices) stamps (the time, in Unix
	// nanoseconds, at which the device was last sampled with success; 0 never)
	// and len(Columns) cells (unit of the column's Descriptor, NaN = blank).
	Ring *ring.Ring
	// Interval is the time between two rows.
	Interval time.Duration
}

// View is all sources at one time, in order of collector priority and then in
// the order of the collector.
type View struct {
	Version uint64 // grows with every change
	Sources []*Source
}

// Board holds the current View. The zero Board holds an empty View.
type Board struct{ p atomic.Pointer[View] }

// Load returns the current View, never nil.
func (b *Board) Load() *View {
	if v := b.p.Load(); v != nil {
		return v
	}
	return &empty
}

// Store replaces the View. v must not be changed afterwards.
func (b *Board) Store(v *View) { b.p.Store(v) }

var empty View
