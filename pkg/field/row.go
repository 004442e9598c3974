package field

import (
	"strings"
	"unicode/utf8"
)

// field makes a Field of a row, or says why not.
func (p *parser) field(r *record) (Field, bool) {
	if r.Name == "" {
		p.unknown(r, "the row names no field")
		return Field{}, false
	}
	d, scale, ok := p.lookUp(r)
	typ, typeOK := p.readType(r)
	f := Field{Desc: d, Name: r.Name, Type: typ, Help: p.cleanHelp(r), Scale: scale, Line: r.Line}
	optionsOK := p.readOptions(&f, r)
	if !ok || !typeOK || !optionsOK || !p.usable(&f, r) || p.duplicate(r) {
		return Field{}, false
	}
	if f.Type == Histogram && f.Buckets == nil {
		f.Buckets = bucketsFor(d, scale)
	}
	return f, true
}

func (p *parser) lookUp(r *record) (*Descriptor, float64, bool) {
	if d, scale, ok := ByName(r.Name); ok {
		return d, scale, true
	}
	if better, ok := p.suggest(r.Name); ok {
		p.unknown(r, "unknown field %v, did you mean %v?", quoted(r.Name), quoted(better))
	} else {
		p.unknown(r, "unknown field %v", quoted(r.Name))
	}
	return nil, 0, false
}

// suggest is Suggest for the first so many names: the search takes a while, and
// a file with more is not a list of misspelt fields.
func (p *parser) suggest(name string) (string, bool) {
	const most = 100
	if p.suggested++; p.suggested > most {
		return "", false
	}
	return Suggest(name)
}

// unknown remarks on a row that names nothing we know.
func (p *parser) unknown(r *record, format string, args ...any) {
	severity := Warning
	if p.strict {
		severity = Error
	}
	p.add(severity, r.Line, r.NameCol, format, args...)
}

// readType reads the second cell.
func (p *parser) readType(r *record) (Type, bool) {
	if r.Type == "summary" {
		p.warn(r.Line, r.TypeCol, "type summary is read as gauge; type histogram keeps what happens between scrapes")
		return Gauge, true
	}
	if t, ok := typeByName(r.Type); ok {
		return t, true
	}
	if r.Type == "" {
		p.fail(r.Line, r.TypeCol, "the row has no type; types are %s", typeNames)
	} else if better, ok := nearest(r.Type, allTypes); ok {
		p.fail(r.Line, r.TypeCol, "unknown type %v, did you mean %v?", quoted(r.Type), quoted(better))
	} else {
		p.fail(r.Line, r.TypeCol, "unknown type %v; types are %s", quoted(r.Type), typeNames)
	}
	return 0, false
}

// cleanHelp returns the help text with bytes that are no UTF-8 replaced. Control
// characters stay; they are escaped where the text is rendered.
func (p *parser) cleanHelp(r *record) string {
	if utf8.ValidString(r.Help) {
		return r.Help
	}
	p.warn(r.Line, r.HelpCol, "the help text is not UTF-8; the bad bytes are replaced")
	return strings.ToValidUTF8(r.Help, "\uFFFD")
}

// usable reports whether the field can be shown with that type.
func (p *parser) usable(f *Field, r *record) bool {
	if f.Desc == nil {
		return false
	}
	switch kind := f.Desc.Kind; {
	case kind == None:
		p.warn(r.Line, r.NameCol, "field %v never has a value; the row is left out", quoted(r.Name))
	case kind == Binary || kind == Timestamp:
		p.warn(r.Line, r.NameCol, "field %v is a %v value, which no page can show; the row is left out", quoted(r.Name), kind)
	case kind == String && f.Type != Label:
		p.warn(r.Line, r.TypeCol, "field %v is a text; use type label; the row is left out", quoted(r.Name))
	case f.Type == Label && computed(f.Desc):
		p.warn(r.Line, r.TypeCol, "field %v is counted by the exporter and can not be a label; the row is left out", quoted(r.Name))
	case f.Type == Histogram && computed(f.Desc):
		p.warn(r.Line, r.TypeCol, "field %v can not be a histogram, it is read as gauge", quoted(r.Name))
		f.Type, f.Buckets = Gauge, nil
		return true
	default:
		return true
	}
	return false
}

// computed reports whether the exporter counts d itself, or d has labels of its
// own: no single value of a device.
func computed(d *Descriptor) bool { return d.ID >= FirstExporter && d.ID < FirstNVIDIA }

// duplicate reports whether an earlier row has the same name. Two names of one
// field are no duplicates: they become two families.
func (p *parser) duplicate(r *record) bool {
	if line, ok := p.byName[r.Name]; ok {
		p.warn(r.Line, r.NameCol, "field %v is in line %d already; the row is left out", quoted(r.Name), line)
		return true
	}
	p.byName[r.Name] = r.Line
	return false
}
