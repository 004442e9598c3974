package field

import (
	"fmt"
	"slices"
	"strings"
)

// Names selects the names under which fields are shown. DCGM 4.7, and with it dcgm-exporter 4.9, renamed many
// fields and changed the unit of some; the old names come from DCGM 4.6 and dcgm-exporter 4.8 and before. The
// name of a Dialect may follow, as in old,DIALECT, or stand alone: then its devices have no other names.
type Names string

// The Names. Both adds the names of both generations to the name in the file.
const (
	NamesAsWritten Names = "as-written"
	NamesOld       Names = "old"
	NamesNew       Names = "new"
	NamesBoth      Names = "both"
)

// AllNames returns every way to name fields, with the known dialects.
func AllNames(dialects ...string) []string {
	own := []string{"as-written", "old", "new", "both"}
	out := slices.Clone(own)
	for _, d := range dialects {
		out = append(out, d)
		for _, n := range own {
			out = append(out, n+","+d)
		}
	}
	return out
}

// ParseNames reads one of AllNames.
func ParseNames(s string, dialects ...string) (Names, error) {
	if slices.Contains(AllNames(dialects...), s) {
		return Names(s), nil
	}
	more := ""
	if len(dialects) > 0 {
		more = ", or " + strings.Join(dialects, ", ") + ", alone or behind one of these: new," + dialects[0]
	}
	return "", fmt.Errorf("bad names %v; write as-written, old, new or both%s", quoted(s), more)
}

// Split returns the names of the list's fields, and the dialect, or "".
func (n Names) Split() (own Names, dialect string) {
	first, rest, both := strings.Cut(string(n), ",")
	switch {
	case both:
		return Names(first), rest
	case !slices.Contains(AllNames(), first):
		return NamesAsWritten, first // all other devices keep their own names
	}
	return n, ""
}

// Named returns the list with the given names, without a dialect. A line's own Names win. A field with
// several names is listed once for each; all show one reading (see Readings). A name is shown once: a line
// that has it in the file goes before a line that is translated to it. If the types differ, the translated
// line keeps its name from the file, with a problem.
//
// Histograms keep their names, because no dcgm-exporter has histograms.
func (l List) Named(names Names, file string) (List, []Problem) {
	p := &problems{file: file}
	wanted, _ := names.Split()
	shown := make([][]Field, len(l.Fields))
	owners := map[string]int{} // index of the line, by name
	for i := range l.Fields {
		shown[i] = l.Fields[i].named(wanted)
		if slices.ContainsFunc(shown[i], func(f Field) bool { return f.Name == l.Fields[i].Name }) {
			owners[l.Fields[i].Name] = i
		}
	}
	var out List
	for i := range l.Fields {
		written := l.Fields[i]
		for _, f := range shown[i] {
			o, taken := owners[f.Name]
			if taken && o != i {
				if l.Fields[o].Type == f.Type {
					continue // the same series
				}
				p.warn(written.Line, 0, "field %v is not shown as %v, which line %d has with another type", quoted(written.Name), quoted(f.Name), l.Fields[o].Line)
				if _, shown := owners[written.Name]; shown {
					continue
				}
				f, f.Names = written, ""
			}
			owners[f.Name] = i
			out.Fields = append(out.Fields, f)
		}
	}
	// Other old names show that the list may be for DCGM 4.6, where this name is field 203, in percent.
	line := func(name string) int {
		return slices.IndexFunc(l.Fields, func(f Field) bool { return f.Name == name && f.Type != Histogram })
	}
	i, old := line("DCGM_FI_DEV_GPU_UTIL_RATIO"), func(f Field) bool { latest, _ := f.Desc.NewName(); return f.Type != Label && f.Name != latest }
	if i >= 0 && line("DCGM_FI_DEV_GPU_UTIL") < 0 && slices.ContainsFunc(l.Fields, old) {
		p.warn(l.Fields[i].Line, 0, "field %v is 0 to 1; dcgm-exporter 4.8.3 and 4.8.4 have percent under that name: write DCGM_FI_DEV_GPU_UTIL for percent", quoted(l.Fields[i].Name))
	}
	return out, p.sorted()
}

// named returns the field under the given names. New names of totals end in _TOTAL
// (dcgmlib/dcgm_field_naming.py of https://github.com/NVIDIA/DCGM). So throughput and pending counts, which
// lists of dcgm-exporter up to 4.8.3 called counters, are gauges under a new name, as in later lists
// (internal/pkg/counters of https://github.com/NVIDIA/dcgm-exporter).
func (f Field) named(wanted Names) []Field {
	if f.Names != "" {
		wanted = f.Names
	}
	f.Names = ""
	if f.Type == Histogram {
		return []Field{f}
	}
	latest, scale := f.Desc.NewName()
	was, is := f.as(f.Desc.Name, 1), f.as(latest, scale)
	if latest != f.Name && f.Type == Counter && !strings.HasSuffix(latest, "_TOTAL") {
		is.Type = Gauge
	}
	switch wanted {
	case NamesOld:
		return []Field{was}
	case NamesNew:
		return []Field{is}
	case NamesBoth:
		all := []Field{f}
		for _, other := range []Field{was, is} {
			if !slices.ContainsFunc(all, func(g Field) bool { return g.Name == other.Name }) {
				all = append(all, other)
			}
		}
		return all
	}
	return []Field{f}
}

// as returns the field under another name. It keeps the file's help unless the unit changes.
func (f Field) as(name string, scale float64) Field {
	if name == f.Name {
		return f
	}
	if scale != f.Scale {
		f.Help = f.Desc.Help + " (" + unitOf(f.Desc, scale) + ")"
	}
	f.Name, f.Scale = name, scale
	return f
}

// unitOf returns the unit of d's reading times scale.
func unitOf(d *Descriptor, scale float64) string {
	for _, id := range d.Scaled {
		if s, ok := ByID(id); ok && s.Factor == scale {
			return s.Unit
		}
	}
	return d.Unit
}
