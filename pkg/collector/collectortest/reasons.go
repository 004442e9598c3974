package collectortest

import (
	"fmt"
	"math"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

// checkReasons checks that each device has a column or a reason for every reading that such
// a device could have. The list includes a reading that no device has.
func checkReasons(tb *subtest) {
	fields := with(tb.h.Fields, unknown())
	_, sources := tb.openFor(fields)
	for i, s := range sources {
		e, ok := s.(collector.Explainer)
		if !ok {
			tb.Errorf("source %d is no collector.Explainer", i)
			continue
		}
		checkExplanations(tb, i, e.Explanations())
		type key struct {
			device int
			field  field.ID
		}
		has, why := map[key]bool{}, map[key]bool{}
		for _, c := range s.Columns() {
			has[key{c.Device, c.Field}] = true
		}
		for _, a := range e.Absent() {
			at := fmt.Sprintf("source %d: absence of field %d", i, a.Field)
			k := key{a.Device, a.Field}
			switch {
			case a.Device < 0 || a.Device >= len(s.Devices()):
				tb.Errorf("%s: device %d, the source has %d", at, a.Device, len(s.Devices()))
			case int(a.Explanation) >= len(e.Explanations()):
				tb.Errorf("%s: explanation %d, the source has %d", at, a.Explanation, len(e.Explanations()))
			case has[k]:
				tb.Errorf("%s: device %q has a column of it", at, s.Devices()[a.Device].ID)
			case why[k]:
				tb.Errorf("%s: device %q has two reasons", at, s.Devices()[a.Device].ID)
			}
			why[k] = true
		}
		for d := range s.Devices() {
			for _, r := range fields.Readings() {
				if k := (key{d, r.Desc.ID}); r.Desc.AskedOf(s.Devices()[d].Level) && !has[k] && !why[k] {
					tb.Errorf("source %d: device %q has neither a column of %s nor a reason", i, s.Devices()[d].ID, r.Desc.Name)
				}
			}
		}
		if diff := cmp.Diff(e.Absent(), e.Absent()); diff != "" {
			tb.Errorf("source %d: absences change:\n%s", i, diff)
		}
	}
}

func checkExplanations(tb *subtest, source int, all []collector.Explanation) {
	tb.Helper()
	if len(all) > collector.MaxExplanations {
		tb.Errorf("source %d: %d explanations, at most %d", source, len(all), collector.MaxExplanations)
	}
	for _, x := range all {
		if !x.Reason.Valid() || x.Detail == "" || len(x.Detail) > collector.MaxDetail || !utf8.ValidString(x.Detail) {
			tb.Errorf("source %d: explanation %q, %q: want a reason of the list and 1 to %d bytes", source, x.Reason, x.Detail, collector.MaxDetail)
		}
	}
}

// checkBlanks checks that each blank cell refers to an existing explanation or to none.
func checkBlanks(tb *subtest) {
	_, sources := tb.open()
	for i, s := range sources {
		explanations := 0
		if e, ok := s.(collector.Explainer); ok {
			explanations = len(e.Explanations())
		}
		for range 3 {
			for j, v := range sampleAll(tb, s) {
				if b := collector.BlankOf(v); math.IsNaN(v) && (b.Explanation >= explanations || b.Implausible || b.NotSampled) {
					tb.Errorf("source %d, column %d (%s): a blank that refers to %+v, of %d explanations", i, j, columnName(s, j), b, explanations)
				}
			}
		}
	}
}

// ReasonOf returns the text why a field of a device has no value in a row, or "" if it has a value.
func ReasonOf(tb testing.TB, s collector.Source, row []float64, device int, name string) string {
	tb.Helper()
	d, _, ok := field.ByName(name)
	e, explains := s.(collector.Explainer)
	if !ok || !explains {
		tb.Fatalf("no field %q, or no collector.Explainer", name)
	}
	why := func(i int) string {
		return string(e.Explanations()[i].Reason) + ": " + e.Explanations()[i].Detail
	}
	for i, c := range s.Columns() {
		if c.Device != device || c.Field != d.ID || c.Buffer > 0 {
			continue
		}
		switch b := collector.BlankOf(row[i]); {
		case !math.IsNaN(row[i]):
			return ""
		case b.Explanation >= 0:
			return why(b.Explanation)
		}
		return "blank"
	}
	for _, a := range e.Absent() {
		if a.Device == device && a.Field == d.ID {
			return why(int(a.Explanation))
		}
	}
	tb.Errorf("device %d has neither a column of %s nor a reason", device, name)
	return ""
}
