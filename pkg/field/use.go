package field

import "strings"

// counters are DCGM's readings that only go up while the driver runs, by id.
var counters = [][2]ID{
	{156, 156}, {202, 202}, {240, 247}, {310, 345}, {390, 391}, {393, 394}, {400, 439}, {451, 474}, {481, 493}, {497, 499}, {583, 592},
	{780, 785}, {787, 824}, {861, 862}, {1084, 1096}, {1200, 1214}, {1219, 1220}, {1400, 1402}, {1404, 1424}, {1501, 1501}, {1509, 1509},
	{1525, 1528},
}

// Use returns the type that a row of a counters CSV should give to a field: label for a
// text, counter for a number that only goes up, gauge for any other number. It returns false for
// readings that no row can show. A number as a label makes a new series with each value, and a
// histogram, of any number, is the user's choice.
func (d *Descriptor) Use() (Type, bool) {
	id := d.ID
	if d.Factor != 0 {
		id = d.Of
	}
	switch d.Kind {
	case String:
		return Label, true
	case Int64, Double:
	default:
		return 0, false
	}
	if id >= FirstExporter && strings.HasSuffix(strings.ToLower(d.Name), "_total") {
		return Counter, true
	}
	for _, r := range counters {
		if id >= r[0] && id <= r[1] {
			return Counter, true
		}
	}
	return Gauge, true
}
