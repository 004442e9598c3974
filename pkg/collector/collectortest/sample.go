package collectortest

import (
	"math"
	"slices"
	"testing"

	"warpgauge/internal/testkit"
	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// poison is an impossible value. It shows whether a cell was written.
const poison = -1.0625e300

// sampleAll samples every column into a fresh row of blanks.
func sampleAll(tb testing.TB, s collector.Source) []float64 {
	tb.Helper()
	row, due := rowOf(s, math.NaN()), dueOf(s, true)
	if err := s.Sample(row, due); err != nil {
		tb.Fatalf("sample: %v", err)
	}
	return row
}

func rowOf(s collector.Source, v float64) []float64 {
	return slices.Repeat([]float64{v}, len(s.Columns()))
}

func dueOf(s collector.Source, v bool) []bool {
	return slices.Repeat([]bool{v}, len(s.Columns()))
}

// checkDueFilled checks that Sample writes every due cell, a value or NaN.
func checkDueFilled(tb *subtest) {
	_, sources := tb.open()
	wanted := descriptors(tb.h.Fields)
	for i, s := range sources {
		event := eventColumns(s, wanted)
		row, due := rowOf(s, poison), dueOf(s, true)
		for j := range row {
			if event[j] {
				row[j] = math.NaN()
			}
		}
		if err := s.Sample(row, due); err != nil {
			tb.Fatalf("sample source %d: %v", i, err)
		}
		for j, v := range row {
			if v == poison {
				tb.Errorf("source %d, column %d (%s): due, and not written", i, j, columnName(s, j))
			}
		}
		for j, d := range due {
			if !d {
				tb.Errorf("source %d: sample changed due[%d]", i, j)
			}
		}
	}
}

// checkKept checks that Sample leaves cells unchanged that are not due.
func checkKept(tb *subtest) {
	_, sources := tb.open()
	for i, s := range sources {
		for _, step := range []int{0, 2, 3} { // 0: no column is due; 2, 3: every second, third column
			row, due := rowOf(s, poison), dueOf(s, false)
			for j := range due {
				due[j] = step > 0 && j%step == 0
				if s.Columns()[j].Buffer > 1 { // a block is due as a whole
					due[j] = due[j-1]
				}
			}
			if err := s.Sample(row, due); err != nil {
				tb.Fatalf("sample source %d: %v", i, err)
			}
			for j := range row {
				if !due[j] && row[j] != poison {
					tb.Errorf("source %d, column %d (%s): not due, and changed to %v", i, j, columnName(s, j), row[j])
				}
			}
		}
	}
}

// checkValues checks that each reading is plausible or NaN.
func checkValues(tb *subtest) {
	_, sources := tb.open()
	wanted := descriptors(tb.h.Fields)
	filled := 0
	for i, s := range sources {
		for range 5 {
			for j, v := range sampleAll(tb, s) {
				d := wanted[s.Columns()[j].Field]
				if math.IsNaN(v) || d == nil || s.Columns()[j].Buffer > 0 {
					continue
				}
				filled++
				checkValue(tb, i, j, columnName(s, j), v, d)
			}
		}
	}
	if filled == 0 {
		tb.Errorf("every cell of every source is blank")
	}
}

func checkValue(tb testing.TB, i, j int, name string, v float64, d *field.Descriptor) {
	tb.Helper()
	switch {
	case isSentinel(v):
		tb.Errorf("source %d, column %d (%s): %v is a sentinel for a blank, want NaN", i, j, name, v)
	case v < d.Min || v > d.Max:
		tb.Errorf("source %d, column %d (%s): %v is outside of the plausible [%v, %v]", i, j, name, v, d.Min, d.Max)
	case d.Kind == field.Int64 && v != math.Trunc(v):
		tb.Errorf("source %d, column %d (%s): %v is not an integer", i, j, name, v)
	}
}

// isSentinel reports whether v is a vendor library's "no value": the blanks of dcgm_structs.h (four each for 32-bit,
// 64-bit and floating point), or all ones in gpu_metrics and NVML.
func isSentinel(v float64) bool {
	for _, first := range []float64{2147483632, 9223372036854775792, 140737488355328} {
		if v >= first && v <= first+3 {
			return true
		}
	}
	return v == math.MaxUint32 || v == math.MaxUint64 || math.IsInf(v, 0)
}

// checkEvents checks that event cells stay unchanged if they are not due, and become NaN or plausible if they are.
func checkEvents(tb *subtest) {
	_, sources := tb.open()
	wanted := descriptors(tb.h.Fields)
	events := 0
	for i, s := range sources {
		event := eventColumns(s, wanted)
		of, blanks := 0, 0
		const rounds = 20
		for range rounds {
			row := sampleAll(tb, s)
			for j := range row {
				if !event[j] || s.Columns()[j].Buffer > 0 {
					continue
				}
				of++
				if math.IsNaN(row[j]) {
					blanks++
				} else {
					checkValue(tb, i, j, columnName(s, j), row[j], wanted[s.Columns()[j].Field])
				}
			}
		}
		if of > 0 && blanks == 0 {
			tb.Errorf("source %d: none of %d event cells was NaN; an event cell is blank unless something happened in this tick", i, of)
		}
		events += of
	}
	if events == 0 {
		tb.Skip("the collector has no event column for the list")
	}
}

// checkEventRaised checks that an event appears in exactly one tick.
func checkEventRaised(tb *subtest) {
	if tb.rig.RaiseEvent == nil {
		tb.Skip("the rig has no RaiseEvent")
	}
	_, sources := tb.open()
	wanted := descriptors(tb.h.Fields)
	for _, s := range sources {
		for j, is := range eventColumns(s, wanted) {
			c := s.Columns()[j]
			if !is || c.Buffer > 0 {
				continue
			}
			sampleAll(tb, s)
			const code = 31
			tb.rig.RaiseEvent(s.Devices()[c.Device].ID, c.Field, code)
			if got := sampleAll(tb, s)[j]; got != code {
				tb.Errorf("%s after an event %d: got %v", columnName(s, j), code, got)
			}
			if got := sampleAll(tb, s)[j]; !math.IsNaN(got) {
				tb.Errorf("%s one tick after the event: got %v, want NaN", columnName(s, j), got)
			}
			return
		}
	}
	tb.Skip("the collector has no event column for the list")
}

// checkOwnership checks that neither slice is used after Sample has returned.
func checkOwnership(tb *subtest) {
	_, sources := tb.open()
	wanted := descriptors(tb.h.Fields)
	for i, s := range sources {
		first, firstDue := rowOf(s, math.NaN()), dueOf(s, true)
		if err := s.Sample(first, firstDue); err != nil {
			tb.Fatalf("sample source %d: %v", i, err)
		}
		for j := range first {
			first[j], firstDue[j] = poison, false
		}
		row := sampleAll(tb, s)
		event := eventColumns(s, wanted)
		for j := range row {
			if first[j] != poison || firstDue[j] {
				tb.Errorf("source %d, column %d (%s): a row was written after its call had returned", i, j, columnName(s, j))
			}
			if row[j] == poison && !event[j] {
				tb.Errorf("source %d, column %d (%s): read from a row of an earlier call", i, j, columnName(s, j))
			}
		}
	}
}

// checkAllocations checks that Sample allocates nothing in steady state.
func checkAllocations(tb *subtest) {
	if testkit.Race {
		tb.Skip("the race runtime allocates")
	}
	if tb.h.Allocates {
		tb.Skip("the library's Go binding allocates")
	}
	_, sources := tb.open()
	for i, s := range sources {
		row, due := rowOf(s, math.NaN()), dueOf(s, true)
		var failed error
		n := testing.AllocsPerRun(100, func() {
			if err := s.Sample(row, due); err != nil {
				failed = err
			}
		})
		if failed != nil {
			tb.Fatalf("sample source %d: %v", i, failed)
		}
		if n != 0 {
			tb.Errorf("source %d: %v allocations per sample, want 0", i, n)
		}
	}
}

func columnName(s collector.Source, j int) string {
	c := s.Columns()[j]
	name := s.Devices()[c.Device].ID
	if d, ok := field.ByID(c.Field); ok {
		return name + " " + d.Name
	}
	return name
}
