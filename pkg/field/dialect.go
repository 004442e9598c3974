package field

import "slices"

// Dialect holds another exporter's names for the devices of one vendor. An extension makes it. A List shows the
// devices under them, next to or instead of its own names. A Dialect must not be changed.
type Dialect struct {
	InPlace  bool // its devices do not have the names of the list's fields
	Readings []ID // readings that the series show
	Texts    []ID // texts that labels of the series show, see collector.Device.Texts

	// Empty in a child process, which only samples.
	Vendor *Vendor `json:"-"` // the vendor whose devices have the names
	Names  any     `json:"-"` // makes the series: an exposition.Dialect
}

// NameValue is a name with its value.
type NameValue struct{ Name, Value string }

// Shows reports whether a series of the dialect shows a reading. Nil shows none.
func (d *Dialect) Shows(id ID) bool { return d != nil && slices.Contains(d.Readings, id) }

// Counts reports whether a series of the dialect shows a reading that only goes up.
func (d *Dialect) Counts(id ID) bool {
	desc, known := ByID(id)
	if !known || !d.Shows(id) {
		return false
	}
	use, _ := desc.Use()
	return use == Counter
}

// readings returns each reading of the series once.
func (d *Dialect) readings() (out []Reading) {
	if d == nil {
		return nil
	}
	for _, id := range d.Readings {
		if desc, known := ByID(id); known && !slices.ContainsFunc(out, func(r Reading) bool { return r.Desc == desc }) {
			out = append(out, Reading{Desc: desc, Default: true})
		}
	}
	return out
}
