package field

import (
	"fmt"
	"slices"
	"strings"
)

// Names says under which names fields are shown. DCGM 4.7, and with it dcgm-exporter 4.9,
// renamed many fields and changed the unit of some; the old names are those of DCGM 4.6 and
// dcgm-exporter 4.8 and before. AMD's devices can have the names of AMD's exporter in place of
// them, amd, or next to them: old,amd.
type Names string

// The Names. Both is the name as written next to those of both generations.
const (
	NamesAsWritten Names = "as-written"
	NamesOld       Names = "old"
	NamesNew       Names = "new"
	NamesBoth      Names = "both"
	NamesAMD       Names = "amd"

	andAMD = "," + NamesAMD
)

// AllNames returns every way to name fields.
func AllNames() []string {
	return []string{"as-written", "old", "new", "both", "amd", "as-written,amd", "old,amd", "new,amd", "both,amd"}
}

// ParseNames reads one of the Names.
func ParseNames(s string) (Names, error) {
	if !slices.Contains(AllNames(), s) {
		return "", fmt.Errorf("bad names %v; write as-written, old, new or both, or amd, alone or behind one of these: new,amd", quoted(s))
	}
	return Names(s), nil
}

// parseNVIDIA reads those of the Names that a line can have.
func parseNVIDIA(s string) (Names, error) {
	n, err := ParseNames(s)
	switch {
	case err != nil:
		return "", fmt.Errorf("bad names %v; write as-written, old, new or both", quoted(s))
	case n.amd():
		return "", fmt.Errorf("names %v: AMD's names are of AMD's fields and not of lines; --field-names asks for them", quoted(s))
	}
	return n, nil
}

func (n Names) amd() bool { return n == NamesAMD || strings.HasSuffix(string(n), string(andAMD)) }

// nvidia returns under which of NVIDIA's names fields are shown.
func (n Names) nvidia() Names {
	if n == NamesAMD {
		return NamesAsWritten // of all other devices
	}
	return Names(strings.TrimSuffix(string(n), string(andAMD)))
}

// NewName returns the name that DCGM 4.7 has for the reading d, and by what the reading is
// multiplied to be in the unit of that name. It is d's own name, and 1, if there is no
// other.
func (d *Descriptor) NewName() (name string, scale float64) {
	if len(d.Scaled) > 0 {
		s, _ := ByID(d.Scaled[0])
		return s.Name, s.Factor
	}
	if d.Renamed != "" {
		return d.Renamed, 1
	}
	return d.Name, 1
}

// Named returns the list with the names that are wanted: its lines' own Names, else those
// given. A field with several names is there once for each; all show one reading (see
// Readings). A name is shown once: a line that has it in the file goes before one that is
// translated to it, and if that has another type, the translated line keeps the name that
// the file has for it, which the problems say.
//
// Histograms keep their names: dcgm-exporter of no generation has any.
func (l List) Named(names Names, file string) (List, []Problem) {
	p, wanted := &problems{file: file}, names.nvidia()
	shown := make([][]Field, len(l.Fields))
	owners := map[string]int{} // of names: index of the line
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
	if names.amd() {
		out, _ = out.WithAMD(AMD{InPlace: names == NamesAMD})
	}
	return out, p.sorted()
}

// named returns the field under the names that are wanted. New names of totals end in
// _TOTAL (dcgmlib/dcgm_field_naming.py of https://github.com/NVIDIA/DCGM). So throughput
// and what is pending, which lists of dcgm-exporter up to 4.8.3 called counters, are gauges
// under a new name, as in later lists (internal/pkg/counters of
// https://github.com/NVIDIA/dcgm-exporter).
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

// as returns the field under another name. Its help is that of the file unless the unit is
// another one.
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

// unitOf is the unit of d's reading times scale.
func unitOf(d *Descriptor, scale float64) string {
	for _, id := range d.Scaled {
		if s, ok := ByID(id); ok && s.Factor == scale {
			return s.Unit
		}
	}
	return d.Unit
}
