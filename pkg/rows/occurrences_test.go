package rows

import (
	"fmt"
	"slices"
	"testing"

	"warpgauge/pkg/collector"
	"warpgauge/pkg/events"
	"warpgauge/pkg/field"
)

// TestOccurrences reads rows one second apart, each with a new View of the same device.
func TestOccurrences(t *testing.T) {
	link := func(number string) collector.Column {
		return collector.Column{Field: field.PerLinkDataErrors, Labels: []collector.Label{{Name: "link", Value: number}}}
	}
	memory := collector.Column{Field: field.UncorrectedErrorsLife}
	buffered := collector.Column{Field: field.UncorrectedErrorsLife, Buffer: 1}
	spare := collector.Column{Device: 1, Field: field.UncorrectedErrorsLife} // device 1 repeats device 0
	name := func(id field.ID) string { d, _ := field.ByID(id); return d.Name }
	memoryName, linkName := name(field.UncorrectedErrorsLife), name(field.PerLinkDataErrors)
	for _, x := range []struct {
		name    string
		columns []collector.Column
		failed  int // the row in which no device is sampled; -1: none
		rows    [][]float64
		want    []string
	}{
		{"a new error counts from the last known value", []collector.Column{memory, buffered}, -1, [][]float64{{7, 7}, {7, 7}, {nan, 8}, {-1, 8}, {9, 8}},
			[]string{"4 uncorrected_error x a true " + memoryName + " grew by 2 to 9"}},
		{"each new error is an event", []collector.Column{memory}, -1, [][]float64{{0}, {1}, {1}, {2}},
			[]string{"1 uncorrected_error x a true " + memoryName + " grew by 1 to 1", "3 uncorrected_error x a true " + memoryName + " grew by 1 to 2"}},
		{"a counter that was reset", []collector.Column{memory}, -1, [][]float64{{7}, {3}, {3}}, nil},
		{"a row without a sample", []collector.Column{memory}, 1, [][]float64{{7}, {9}, {7}}, nil},
		{"a source that does not supply the device", []collector.Column{spare}, -1, [][]float64{{7}, {9}}, nil},
		{"another field", []collector.Column{{Field: field.GPUTemperature}}, -1, [][]float64{{7}, {900}}, nil},
		{"links are judged one by one", []collector.Column{link("0"), link("1")}, -1, [][]float64{{5, 5}, {60, 5}, {104, 104}, {105, 104}, {110, 105}},
			[]string{"3 link_errors x a true " + linkName + " grew by 100 to 105", "4 link_errors x a true " + linkName + " grew by 100 to 105"}},
	} {
		var bus events.Bus
		sub := bus.Subscribe(16)
		r := New(nil, &bus)
		r.Follow(&Occurrences{})
		s := newSource("x", 16, []string{"a", "a"}, x.columns...)
		for i, cells := range x.rows {
			copy(s.cells[2:], cells)
			if i == x.failed {
				s.row(at(float64(i)), 0, 1)
			} else {
				s.row(at(float64(i)))
			}
			r.Read(viewOf(s), at(float64(i)))
		}
		r.publish()
		var got []string
		for len(sub.C) > 0 {
			e := <-sub.C
			got = append(got, fmt.Sprint(e.Time.Sub(start).Seconds(), " ", e.Kind, " ", e.Source, " ", e.Device.ID, " ", e.Bad, " ", e.Text))
		}
		if !slices.Equal(got, x.want) {
			t.Errorf("%s: got events %q, want %q", x.name, got, x.want)
		}
	}
}
