package field

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
// Inputs), that reading is listed instead of the field.
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
			at[d.ID] = len(out)
			out = append(out, Reading{Desc: d, Interval: f.Interval})
			continue
		}
		if r := &out[i]; f.Interval != 0 && (r.Interval == 0 || f.Interval < r.Interval) {
			r.Interval = f.Interval
		}
	}
	return out
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
