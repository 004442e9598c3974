package collectortest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/field"
)

func checkColumns(tb *subtest) {
	_, sources := tb.open()
	wanted := descriptors(tb.h.Fields)
	columns := 0
	for i, s := range sources {
		seen := map[string]bool{}
		for j, c := range s.Columns() {
			columns++
			at := fmt.Sprintf("source %d, column %d", i, j)
			if c.Device < 0 || c.Device >= len(s.Devices()) {
				tb.Errorf("%s: device index %d, the source has %d devices", at, c.Device, len(s.Devices()))
				continue
			}
			if _, ok := wanted[c.Field]; !ok && !(field.IsXID(c.Field) && wanted[field.XIDEvent] != nil) {
				tb.Errorf("%s: field %d is not one of the list's readings", at, c.Field)
			}
			checkLabels(tb, at, c.Labels)
			for _, name := range ownLabels(c.Field) {
				if !slices.ContainsFunc(c.Labels, func(l collector.Label) bool { return l.Name == name }) {
					tb.Errorf("%s: field %d without its label %q: %q", at, c.Field, name, c.Labels)
				}
			}
			key := fmt.Sprintf("%d %d %q %d", c.Device, c.Field, c.Labels, c.Buffer)
			if seen[key] {
				tb.Errorf("%s: the device %q has field %d with labels %q twice", at, s.Devices()[c.Device].ID, c.Field, c.Labels)
			}
			seen[key] = true
		}
	}
	if columns == 0 {
		tb.Errorf("no source has a column for any of %d readings", len(wanted))
	}
}

// ownLabels returns the labels without which a field has no meaning.
func ownLabels(id field.ID) []string {
	switch id {
	case field.GPUHealth:
		return []string{"health_watch", "health_error_code"}
	case field.P2PStatus:
		return []string{"peer_gpu", "link_status"}
	}
	return nil
}

func checkLabels(tb testing.TB, at string, labels []collector.Label) {
	tb.Helper()
	if !slices.IsSortedFunc(labels, func(a, b collector.Label) int { return strings.Compare(a.Name, b.Name) }) {
		tb.Errorf("%s: labels are not sorted by name: %q", at, labels)
	}
	for i, l := range labels {
		if l.Name == "" || i > 0 && labels[i-1].Name == l.Name {
			tb.Errorf("%s: label %q is empty or occurs twice: %q", at, l.Name, labels)
		}
	}
}

// checkUnknownField checks that a field which no device has costs no other column.
func checkUnknownField(tb *subtest) {
	first, plain := tb.open()
	closeNow(tb, first)
	d := unknown()
	_, more := tb.openFor(with(tb.h.Fields, d))
	for i, s := range more {
		for _, c := range s.Columns() {
			if c.Field == d.ID {
				tb.Errorf("source %d: a column for field %d, which does not exist", i, d.ID)
			}
		}
	}
	if got, want := countColumns(more), countColumns(plain); got < want {
		tb.Errorf("an unknown field in the list leaves %d columns of %d", got, want)
	}
}

// checkFixed requires that Devices and Columns stay unchanged after Open: callers keep and share them.
func checkFixed(tb *subtest) {
	_, sources := tb.open()
	for i, s := range sources {
		devices, columns := s.Devices(), s.Columns()
		oldDevices, oldColumns := cloneDevices(devices), cloneColumns(columns)
		for range 3 {
			sampleAll(tb, s)
		}
		if diff := cmp.Diff(oldDevices, s.Devices()) + cmp.Diff(oldDevices, devices); diff != "" {
			tb.Errorf("source %d: devices changed:\n%s", i, diff)
		}
		if diff := cmp.Diff(oldColumns, s.Columns()) + cmp.Diff(oldColumns, columns); diff != "" {
			tb.Errorf("source %d: columns changed:\n%s", i, diff)
		}
	}
}

func cloneDevices(in []collector.Device) []collector.Device {
	out := slices.Clone(in)
	for i := range out {
		out[i].Facts = slices.Clone(out[i].Facts)
	}
	return out
}

func cloneColumns(in []collector.Column) []collector.Column {
	out := slices.Clone(in)
	for i := range out {
		out[i].Labels = slices.Clone(out[i].Labels)
	}
	return out
}

func countColumns(sources []collector.Source) int {
	n := 0
	for _, s := range sources {
		n += len(s.Columns())
	}
	return n
}

// eventColumns reports for each column whether it is an event column.
func eventColumns(s collector.Source, wanted map[field.ID]*field.Descriptor) []bool {
	out := make([]bool, len(s.Columns()))
	for i, c := range s.Columns() {
		d, ok := wanted[c.Field]
		out[i] = ok && d.Event || c.Buffer > 0
	}
	return out
}
