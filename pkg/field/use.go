package field

import "strings"

// Use returns the type that a row of a counters CSV should give to a field: label for a
// text, counter for a number that only goes up, gauge for any other number. It returns false for
// readings that no row can show. A number as a label makes a new series with each value, and a
// histogram, of any number, is the user's choice.
func (d *Descriptor) Use() (Type, bool) {
	switch d.Kind {
	case String:
		return Label, true
	case Int64, Double:
	default:
		return 0, false
	}
	if d.Total || d.ID >= FirstExporter && strings.HasSuffix(strings.ToLower(d.Name), "_total") {
		return Counter, true
	}
	return Gauge, true
}
