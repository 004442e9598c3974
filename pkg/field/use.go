package field

import "strings"

// Use returns the type for a field's row in a counters CSV: label for a text, counter for a number that only
// goes up, gauge for any other number. It returns false for readings that a row cannot show. A number as a
// label makes a new series with each value, and a histogram is the user's choice.
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
