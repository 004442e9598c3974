package session

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
	"warpgauge/pkg/ring"
	"warpgauge/pkg/view"
)

// Limits on the sources of a session: 256 GPUs with the links, instances and cores of the largest node stay below them.
// The rest is dropped.
const (
	MaxDevices = 32 << 10
	MaxColumns = 1 << 18
)

// bound is a source with its selected devices and columns.
type bound struct {
	source   collector.Source
	devices  []collector.Device
	columns  []collector.Column
	keep     *kept // nil if everything is selected
	reasons  reasons
	schedule *schedule
}

// bind selects devices, makes the rings in one block of memory, and prepares a worker for each source.
func (s *Session) bind(sources []collector.Source) (*binding, error) {
	if err := validate(sources); err != nil {
		return nil, err
	}
	sel := s.o.Select.over(sources, s.list.Hidden, s.o.Logger)
	if c, ok := s.collector.(collector.Limited); ok {
		sel.leftOut = c.LeftOut()
	}
	var all []bound
	words, columns, shown := 0, 0, false
	for _, src := range sources {
		b, ok := sel.bind(src)
		if !ok {
			continue
		}
		b.schedule = newSchedule(b.columns, len(b.devices), s.list, s.o)
		columns += len(b.columns)
		waits, silent := src.(collector.Silent)
		shown = shown || silent && waits.Silent() || slices.ContainsFunc(b.columns, func(c collector.Column) bool {
			return !field.IsXID(c.Field) || !s.list.Hides(c.Field) || s.list.Dialect.Shows(c.Field)
		})
		words += ring.Words(ringRows(s.o.RingSpan, b.schedule.tick), len(b.devices), len(b.columns))
		all = append(all, b)
	}
	s.leftOut.Store(int64(sel.leftOut))
	sel.report()
	if len(all) == 0 {
		return nil, sel.nothing(sources)
	}
	if !shown { // XIDs that only health needs keep nothing open, nor do sources without readings
		return nil, fmt.Errorf("%w from the devices selected", collector.ErrNothingToRead)
	}
	mem, owner, err := s.o.Parent.Memory(words)
	if err != nil {
		return nil, fmt.Errorf("make rings of %d words: %w", words, err)
	}
	out := &binding{implausible: map[string]*atomic.Uint64{}}
	for i, b := range all {
		rows := ringRows(s.o.RingSpan, b.schedule.tick)
		n := ring.Words(rows, len(b.devices), len(b.columns))
		r := ring.New(mem[:n:n], rows, len(b.devices), len(b.columns))
		r.Keep(owner)
		mem = mem[n:]
		v := &view.Source{Collector: s.name, Fields: s.list, Devices: b.devices, Columns: b.columns, Ring: r, Interval: b.schedule.tick, Every: b.schedule.every(),
			Explanations: b.reasons.explanations, Absent: b.reasons.absent}
		w := s.newWorker(b, v, out.implausible)
		w.phase = b.schedule.tick * time.Duration(i+1) / time.Duration(len(all)+1)
		out.workers = append(out.workers, w)
		out.sources = append(out.sources, v)
	}
	return out, nil
}

// validate rejects sources that would lead readers out of bounds.
func validate(sources []collector.Source) error {
	if len(sources) == 0 {
		return collector.ErrNoDevices
	}
	for _, src := range sources {
		devices, columns := src.Devices(), src.Columns()
		for i, c := range columns {
			if c.Device < 0 || c.Device >= len(devices) {
				return fmt.Errorf("bind sources: column %d is of device %d, the source has %d", i, c.Device, len(devices))
			}
		}
	}
	return nil
}

// ringRows bounds the size of a ring: 1,024 rows of 100 cells take 0.8 MiB.
func ringRows(span, tick time.Duration) int {
	return int(min(max(span/tick, 16), 1024))
}

// kept is the selected part of a source. The other devices and columns are never due, so they are not read.
type kept struct {
	shown   []int // by device of the source: index of the selected device, or -1
	columns []int // by selected column: column of the source

	// Used by the sampling goroutine; as wide as the source.
	row []float64
	due []bool
}

// sample reads the due columns into row, which is as wide as the selection.
func (k *kept) sample(src collector.Source, row []float64, due []bool) error {
	for i, c := range k.columns {
		k.row[c], k.due[c] = row[i], due[i]
	}
	err := src.Sample(k.row, k.due)
	for i, c := range k.columns {
		row[i] = k.row[c]
	}
	return err
}
