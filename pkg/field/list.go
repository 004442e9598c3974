package field

import "time"

// List is what the user asked for: the fields of one counters CSV in file
// order. The zero List asks for nothing. A List must not be changed.
type List struct {
	Fields []Field
}

// Metrics returns the fields that become families of their own.
func (l List) Metrics() []Field { return l.filter(func(f *Field) bool { return f.Type != Label }) }

// Labels returns the fields that become labels.
func (l List) Labels() []Field { return l.filter(func(f *Field) bool { return f.Type == Label }) }

// Readings returns each quantity that the metric fields need once, in the order
// of first use. Where a field is computed by us from another reading (see
// Input), that reading is listed instead of the field. Fields that show one
// reading under several names or in several units share its entry.
func (l List) Readings() []Reading {
	var out []Reading
	at := map[ID]int{}
	for _, f := range l.Fields {
		if f.Type == Label {
			continue
		}
		d := f.Desc
		if in, ok := Input(d); ok {
			d = in
		}
		i, seen := at[d.ID]
		if !seen {
			i = len(out)
			at[d.ID] = i
			out = append(out, Reading{Desc: d})
		}
		out[i].want(f.Interval)
	}
	return out
}

// want takes in that a field asks for an interval, 0 being the default.
func (r *Reading) want(interval time.Duration) {
	switch {
	case interval == 0:
		r.Default = true
	case r.Interval == 0 || interval < r.Interval:
		r.Interval = interval
	}
}

func (l List) filter(keep func(*Field) bool) []Field {
	var out []Field
	for i := range l.Fields {
		if keep(&l.Fields[i]) {
			out = append(out, l.Fields[i])
		}
	}
	return out
}
