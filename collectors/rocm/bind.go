package rocm

import (
	"math"
	"slices"

	"warpgauge/collectors/rocm/internal/gpumetrics"
	"warpgauge/collectors/rocm/internal/sysfs"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// unit is a device with its possible columns.
type unit struct {
	device collector.Device
	specs  []spec
}

// want keeps the columns that the list has. It keeps pcie_bw only for a row with an interval, because the driver sleeps
// for a second in each read.
func want(units []unit, fields field.List) []unit {
	asked := map[field.ID]bool{}
	for _, r := range fields.Readings() {
		asked[r.Desc.ID] = r.Interval > 0
	}
	var out []unit
	for _, u := range units {
		keep := slices.DeleteFunc(slices.Clone(u.specs), func(s spec) bool {
			explicit, ok := asked[s.field]
			return !ok || !explicit && s.terms[0].op == opBus
		})
		if len(keep) == 0 && u.device.Level == field.Link {
			continue // a node has dozens of links, which most lists do not have
		}
		out = append(out, unit{u.device, keep})
	}
	return out
}

// readings returns the raw readings that the columns may need, without duplicates.
func readings(units []unit) []sysfs.Reading {
	var out []sysfs.Reading
	for _, u := range units {
		for _, s := range u.specs {
			for _, t := range s.terms {
				for _, r := range t.raw {
					if !slices.Contains(out, r) {
						out = append(out, r)
					}
				}
			}
		}
	}
	return out
}

// binder binds specs to the existing readings.
type binder struct {
	slots   map[sysfs.Reading]int // readings that the reader has
	metrics *gpumetrics.Metrics   // as read in Open; nil if unknown, then any member may exist
	bus     bool                  // pcie_bw exists
	process bool                  // KFD lists processes
	added   *added                // nil if not used
}

// cell is a bound column.
type cell struct {
	terms   []bound
	whole   bool // the field is an integer
	slots   []int
	metrics bool // needs gpu_metrics
	bus     bool
	growth  bool    // needs two samples
	process bool    // needs the processes
	records bool    // needs libamd_smi
	blank   float64 // placeholder for a missing value, see explain
}

// absentSlot marks an optional reading that does not exist.
const absentSlot = -1

// bind returns the column of a spec, or false if the board cannot have it.
func (b *binder) bind(s *spec) (cell, bool) {
	var c cell
	for i := range s.terms {
		t, ok := b.possible(s.terms[i])
		if !ok || t.group != b.group(s.terms) {
			continue
		}
		made := bound{term: &t}
		for _, r := range t.raw {
			slot, ok := b.slots[r]
			if !ok {
				slot = absentSlot
			}
			made.slots = append(made.slots, slot)
		}
		made.last = make([]float64, len(made.slots))
		c.slots = append(c.slots, made.slots...)
		c.metrics = c.metrics || len(t.metric) > 0 || t.op == opUnread
		c.bus = c.bus || t.op == opBus
		c.records = c.records || t.op == opRecord
		c.process = c.process || t.op == opProcess
		c.growth = c.growth || t.op == opRate || t.op == opMeanRate || t.op == opPart || t.ofResidencies()
		c.terms = append(c.terms, made)
	}
	if d, ok := field.ByID(s.field); ok {
		c.whole = d.Kind == field.Int64
	}
	c.slots = slices.DeleteFunc(c.slots, func(slot int) bool { return slot == absentSlot })
	slices.Sort(c.slots)
	c.slots = slices.Compact(c.slots)
	return c, len(c.terms) > 0
}

// group returns the first group of terms that the board certainly supports, or else the first that it may support.
func (b *binder) group(terms []term) int {
	could := -1
	for _, t := range terms {
		t, ok := b.possible(t)
		if !ok {
			continue
		}
		if len(t.raw) > len(t.confirm) || b.hadValue(&t) {
			return t.group
		}
		if could < 0 {
			could = t.group
		}
	}
	return could
}

// hadValue reports whether gpu_metrics had a value for the term in Open.
func (b *binder) hadValue(t *term) bool {
	if b.metrics == nil {
		return false
	}
	for _, f := range t.metric {
		for i := t.first; i < t.first+t.count; i++ {
			if b.metrics.Raw(f, i) != gpumetrics.NA {
				return true
			}
		}
	}
	return false
}

// possible reports whether the term can ever have a value with this board and driver, even if it has none now.
func (b *binder) possible(t term) (term, bool) {
	has := func(r sysfs.Reading) bool { _, ok := b.slots[r]; return ok }
	had := func(f gpumetrics.Field) bool { return b.metrics == nil || b.metrics.Has(f) }
	switch t.op {
	case opFixed:
		return t, !math.IsNaN(t.scale)
	case opUnread:
		return t, true
	case opBus:
		return t, b.bus
	case opProcess:
		return t, b.process
	case opRecord:
		return t, b.added != nil && b.added.lib.refusal(fnRecords) == ""
	case opSum:
		t.raw = slices.DeleteFunc(slices.Clone(t.raw), func(r sysfs.Reading) bool { return !has(r) })
		return t, len(t.raw) > 0
	case opHeld, opReasons, opPart:
		return t, !slices.ContainsFunc(t.metric, func(f gpumetrics.Field) bool { return !had(f) })
	}
	if len(t.raw) > 0 && len(t.confirm) == 0 {
		return t, !slices.ContainsFunc(t.raw, func(r sysfs.Reading) bool { return !has(r) })
	}
	return t, slices.ContainsFunc(t.metric, had)
}
